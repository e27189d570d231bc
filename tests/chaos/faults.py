"""What can happen to a session at any of its lines, and who brings the host back afterwards."""

from __future__ import annotations

import signal
from collections.abc import Callable
from unittest import mock

from orchestrator.onhost.agent.held import lease
from tests.chaos.agent import Agent, Forked, OpRefused
from tests.chaos.host import BreakableHost
from tests.onhost.transaction.place import wait_for

Fault = Callable[[BreakableHost, Forked], list[str]]
# The tail of a session whose controller lives, as far as each op can be done.
_TAIL = (
    ("stop-server", {"which": "debug", "timeout_s": 5, "port": None}),
    ("revert", {}),
    ("restore-server", {}),
    ("finish", {}),
)


def settle(host: BreakableHost) -> list[str]:
    """The lease runs out; the guard works, where there is one; then comes the next contact."""
    host.expire()
    wait_for(lambda: host.find_guard() is None)
    return host.end_session()


def end_guard(host: BreakableHost) -> None:
    """SIGKILL to the session's guard, where it has one."""
    guard = host.find_guard()
    if guard is not None:
        lease.end(guard)


def kill_agent(host: BreakableHost, agent: Forked) -> list[str]:
    """SIGKILL to the agent."""
    agent.kill()
    return settle(host)


def stop_agent(host: BreakableHost, agent: Forked) -> list[str]:
    """SIGSTOP to the agent, and SIGCONT after its guard has reverted."""
    agent.send(signal.SIGSTOP)
    host.expire()
    wait_for(lambda: host.find_guard() is None)
    agent.send(signal.SIGCONT)
    agent.let_go()
    agent.wait()
    return host.end_session()


def kill_guard(host: BreakableHost, agent: Forked) -> list[str]:
    """SIGKILL to guard and agent: only the next contact is left."""
    end_guard(host)
    agent.kill()
    return settle(host)


def kill_only_guard(host: BreakableHost, agent: Forked) -> list[str]:
    """SIGKILL to the guard: agent and controller live, and end the session as ever."""
    assert isinstance(agent, Agent)
    end_guard(host)
    agent.let_go()
    _end_by_controller(agent)
    agent.cut()
    agent.wait()
    return settle(host) if host.has_session() else []


def cut_link(host: BreakableHost, agent: Forked) -> list[str]:
    """End of the agent's stdin: it shortens the lease, ends its step and leaves."""
    assert isinstance(agent, Agent)
    agent.cut()
    agent.let_go()
    code = agent.wait()
    wait_for(lambda: host.find_guard() is None)
    # A step that outlasts the grace is ended by the guard.
    wrong = [f"the agent's exit code was {code}"] if code not in (0, -signal.SIGKILL) else []
    return wrong + host.end_session()


def mute_link(host: BreakableHost, agent: Forked) -> list[str]:
    """No renewal arrives any more while the agent works on: guard and agent race."""
    host.expire()
    agent.let_go()
    wait_for(lambda: host.find_guard() is None)
    agent.kill()
    return host.end_session()


def fill_disk(host: BreakableHost, agent: Forked) -> list[str]:
    """No byte is left on any disk until the session's own end has been tried."""
    return _hindered(host, agent, host.fill, host.drain)


def mount_read_only(host: BreakableHost, agent: Forked) -> list[str]:
    """The install's disk cannot be written until the session's own end has been tried."""
    return _hindered(host, agent, lambda: host.remount("ro"), lambda: host.remount("rw"))


def _hindered(
    host: BreakableHost, agent: Forked, hinder: Callable[[], None], mend: Callable[[], None]
) -> list[str]:
    hinder()
    agent.let_go()
    if isinstance(agent, Agent):
        _end_by_controller(agent)
        agent.cut()
    agent.wait()
    if host.has_session():
        host.expire()
    wait_for(lambda: host.find_guard() is None or "failed" in host.trace())
    mend()
    wait_for(lambda: host.find_guard() is None)
    return host.end_session()


def _end_by_controller(agent: Agent) -> None:
    steps: list[Callable[[], object]] = [agent.answer]
    steps += [lambda op=op, args=args: agent.call(op, args) for op, args in _TAIL]
    for step in steps:
        try:
            step()
        except OpRefused:
            continue


def reboot(host: BreakableHost, agent: Forked) -> list[str]:
    """Every process is gone and the boot id is another one."""
    end_guard(host)
    agent.kill()
    host.end_servers()
    with mock.patch.object(lease, "read_boot_id", return_value="another boot"):
        return host.end_session()


# By whom each can be survived: with disks of its own only where there is one to break.
SESSION: dict[str, Fault] = {
    "SIGKILL agent": kill_agent,
    "SIGSTOP agent, SIGCONT after the revert": stop_agent,
    "SIGKILL guard and agent": kill_guard,
    "SIGKILL guard": kill_only_guard,
    "cut link": cut_link,
    "mute link": mute_link,
    "disk full": fill_disk,
    "read-only remount": mount_read_only,
    "new boot id": reboot,
}
TAIL: dict[str, Fault] = {
    "SIGKILL guard": kill_agent,
    "SIGSTOP guard": lambda host, guard: [*_stop_guard(host, guard)],
    "disk full": fill_disk,
    "read-only remount": mount_read_only,
    "new boot id": reboot,
}
# Without those that break the whole machine: here it is the owner's as well.
MEMBER: dict[str, Fault] = {
    name: fault for name, fault in SESSION.items() if "SIG" in name or "link" in name
}
NEEDS_DISKS = ("disk full", "read-only remount")


def _stop_guard(host: BreakableHost, guard: Forked) -> list[str]:
    guard.send(signal.SIGSTOP)
    problems = host.end_session()
    guard.send(signal.SIGCONT)
    guard.let_go()
    guard.wait()
    return problems + host.end_session()
