"""Talks to hosts outside of a run: who answers, what is left there, and ending it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.agent.ship import open_agent
from orchestrator.diagnostics import fold_hosts
from orchestrator.errors import FleetError, HostError, OrchestratorError
from orchestrator.model.inventory import Host, Inventory
from orchestrator.model.outcome import Outcome
from orchestrator.transport.base import Transport

_CONNECT_S = 20.0
_LOCATE_S = 60.0
_THREADS = 32


@dataclass(frozen=True, slots=True)
class Contact:
    """A host's answer: its agent, or why there is none."""

    host: Host
    agent: AgentClient | None
    error: HostError | None
    sessions: tuple[Mapping[str, Any], ...] = ()


def open_contacts(
    transport: Transport, hosts: Sequence[Host], inventory: Inventory | None = None
) -> list[Contact]:
    """Connect to every host at once and ask for its unfinished sessions; order is kept.

    With an inventory also beside the installs of each host, for sessions whose state directory was
    lost. The caller closes with `close_contacts`. Host errors are values.
    """

    def reach(host: Host) -> Contact:
        agent = None
        try:
            agent = open_agent(transport, host, timeout_s=_CONNECT_S)
            packages = _find_packages(agent, host, inventory)
            sessions = agent.call("status", {"packages": packages}).value["sessions"]
        except HostError as error:
            if agent is not None:
                agent.close()
            return Contact(host, None, error)
        return Contact(host, agent, None, tuple(sessions))

    if not hosts:
        return []
    with ThreadPoolExecutor(min(_THREADS, len(hosts)), "sgldbg-contact") as pool:
        return list(pool.map(reach, hosts))


def _find_packages(agent: AgentClient, host: Host, inventory: Inventory | None) -> list[str]:
    """Where the installs of a host stand, as far as the inventory names their interpreter.

    One that cannot be found is no matter here: `sgldbg hosts` tells of it.
    """
    servers = inventory.servers.values() if inventory is not None else ()
    found: dict[str, None] = {}
    for name in dict.fromkeys(s.install for s in servers if host.name in s.hosts):
        assert inventory is not None
        install = inventory.installs[name]
        if install.python is None:
            continue
        args = {"python": install.python, "package": install.package, "pid": None}
        try:
            found[agent.call("locate", args, timeout_s=_LOCATE_S).value["package_dir"]] = None
        except HostError as error:
            if error.code in ("lost", "timeout"):
                raise
    return list(found)


def join_errors(errors: Sequence[HostError], what: str, state: str) -> OrchestratorError | None:
    """One error of all of these, `what` with their hosts, which are in this state; or `None`."""
    if not errors:
        return None
    hosts = list(dict.fromkeys(e.host for e in errors))
    found = errors[0] if len(errors) == 1 else FleetError(f"{what} {fold_hosts(hosts)}", errors)
    found.outcomes = tuple(Outcome(h, "contact", False, state, state) for h in hosts)
    return found


def unreached(contacts: Sequence[Contact], state: str) -> OrchestratorError | None:
    """The error of all hosts that did not answer, which are then in this state; or `None`."""
    errors = [c.error for c in contacts if c.error is not None]
    return join_errors(errors, "no contact with", state)


def close_contacts(contacts: Sequence[Contact]) -> None:
    """Close every agent's channel."""
    for contact in contacts:
        if contact.agent is not None:
            contact.agent.close()
