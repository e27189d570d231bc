"""Servers that somebody else runs: systemd by a unit, or whatever two commands stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import ARGS, LaunchPair, LaunchSystemd, Server
from orchestrator.servers.adopt import Public, Sought, choose, show
from orchestrator.servers.life import Life, fill_words

Way = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Supervised:
    """A running server, its life, and in the agent's words the way in which it is run."""

    description: Public
    original: Life
    way: Way


def find_unit(agent: AgentClient, sought: Sought) -> Supervised:
    """The main process of the server's unit on this host.

    Raises `HostError`: `no-systemd`, `no-unit`, `server-not-found` where the unit does not run it,
    `not-restorable` where other units would go down with it and stay down, or other servers.
    """
    server, package = sought.server, sought.install.package
    assert isinstance(server.launch, LaunchSystemd)
    asked = {"unit": server.launch.unit, "package": package}
    state = agent.call("unit", asked, timeout_s=60.0).value
    found = _choose_of_unit(agent, sought, state)
    if state["others"]:
        raise HostError(
            f"stopping unit `{state['unit']}` would stop {', '.join(state['others'])} as well,"
            " which would not be started again with it",
            host=sought.host.name,
            code="not-restorable",
            hints=["stop them for the time of the session"],
        )
    way = {"kind": "systemd", "unit": state["unit"], "package": package}
    notes = [
        f"unit `{state['unit']}` runs {name} as well, which is down while the debug life runs"
        for name in [*state["beside"], *(found["strangers"] or ())]
    ]
    original = Life(tuple(found["argv"]), cwd=found["cwd"], notes=tuple(notes))
    return Supervised(found, original, _timed(way, server))


def _choose_of_unit(agent: AgentClient, sought: Sought, state: Mapping[str, Any]) -> Public:
    """The unit's server; of several the one that is meant is named with those beside it."""
    unit, package = state["unit"], sought.install.package
    candidates = agent.call("find-servers", {"package": package}).value
    inside = [found for found in candidates if found["pid"] in state["tree"]]
    if not inside:
        what = f"runs no server of `{package}`" if state["main"] else "does not run"
        raise HostError(
            f"unit `{unit}` {what}: it is {state['active']}",
            host=sought.host.name,
            code="server-not-found",
            hints=[f"start it, `systemctl start {unit}`, or correct `systemd` in the inventory"],
        )
    if len(inside) == 1:
        only: Public = inside[0]
        return only
    meant = choose(inside, sought)
    others = [found for found in inside if found["pid"] != meant["pid"]]
    raise HostError(
        f"stopping unit `{unit}` would stop more than server `{sought.server.name}`: it runs"
        f" {len(inside)} servers of `{package}`",
        host=sought.host.name,
        code="not-restorable",
        notes=[f"seen: {show(found)}" for found in others],
        hints=["give each server a unit of its own"],
    )


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
