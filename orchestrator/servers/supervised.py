"""Servers that somebody else runs: systemd by a unit, or whatever two commands stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import ARGS, Host, Install, LaunchPair, LaunchSystemd, Server
from orchestrator.servers.adopt import Public, Sought, choose
from orchestrator.servers.life import Life, fill_words

Way = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Supervised:
    """A running server, its life, and in the agent's words the way in which it is run."""

    description: Public
    original: Life
    way: Way


def find_unit(agent: AgentClient, server: Server, install: Install, host: Host) -> Supervised:
    """The main process of the server's unit on this host.

    Raises `HostError`: `no-systemd`, `no-unit`, `server-not-found` where the unit does not run,
    `not-restorable` where other units would go down with it and stay down.
    """
    assert isinstance(server.launch, LaunchSystemd)
    state = agent.call("unit", {"unit": server.launch.unit}, timeout_s=60.0).value
    unit = state["unit"]
    candidates = agent.call("find-servers", {"package": install.package}).value
    found = next((c for c in candidates if c["pid"] in state["tree"]), None)
    if found is None:
        what = f"runs no server of `{install.package}`" if state["main"] else "does not run"
        raise HostError(
            f"unit `{unit}` {what}: it is {state['active']}",
            host=host.name,
            code="server-not-found",
            hints=[f"start it, `systemctl start {unit}`, or correct `systemd` in the inventory"],
        )
    if state["others"]:
        raise HostError(
            f"stopping unit `{unit}` would stop {', '.join(state['others'])} as well, which would"
            " not be started again with it",
            host=host.name,
            code="not-restorable",
            hints=["stop them for the time of the session"],
        )
    way = {"kind": "systemd", "unit": unit, "package": install.package}
    return Supervised(found, Life(tuple(found["argv"]), cwd=found["cwd"]), _timed(way, server))


def find_pair(agent: AgentClient, sought: Sought) -> Supervised:
    """The running server that the two commands stop and start; told from others as by `adopt`.

    Raises `HostError`: `server-not-found`, `server-ambiguous`.
    """
    launch, package = sought.server.launch, sought.install.package
    assert isinstance(launch, LaunchPair)
    found = choose(agent.call("find-servers", {"package": package}).value, sought)
    stop, start = (
        fill_words(words, sought.host, sought.rank, sought.nodes)
        for words in (launch.stop, launch.start)
    )
    slot = start.index(ARGS) if ARGS in start else None
    plain = tuple(word for word in start if word != ARGS)
    way = {"kind": "pair", "stop": list(stop), "start": list(plain), "package": package}
    return Supervised(found, Life(plain, slot=slot), _timed(way, sought.server))


def _timed(way: dict[str, Any], server: Server) -> Way:
    return {**way, "start_timeout_s": server.ready.timeout_s}
