"""How a server is found on a host, and what its life there is, whatever started it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import (
    Host,
    Install,
    LaunchAdopt,
    LaunchCommand,
    LaunchSystemd,
    Server,
)
from orchestrator.servers.adopt import choose, find_port, require_restorable, show
from orchestrator.servers.life import Life, debug_life, for_host, join, shown
from orchestrator.servers.ready import require_free_port

__all__ = ["Found", "Life", "debug_life", "find", "find_port", "for_host", "join", "shown"]

# They replace themselves by the rest of their command line.
_EXEC_WRAPPERS = frozenset(
    ["chrt", "env", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "taskset"]
)


@dataclass(frozen=True, slots=True)
class Found:
    """A server's main process on one host.

    `description` is its public description, or `None` where it does not run; `original` is the
    life that a session starts from and that is given back.
    """

    host: str
    description: Mapping[str, Any] | None
    original: Life


def find(
    agent: AgentClient, server: Server, install: Install, host: Host, rank: int, nodes: int
) -> Found:
    """Find the server on the host that has this node rank; nothing is changed there.

    Raises `HostError`: `server-not-found`, `server-ambiguous`, `not-restorable`, `port-taken`
    (it does not run, and somebody else listens where it would), `not-supported`.
    """
    launch = server.launch
    if not isinstance(launch, LaunchAdopt | LaunchCommand):
        kind = "systemd" if isinstance(launch, LaunchSystemd) else "stop"
        raise HostError(
            f"server `{server.name}`: `launch: {{{kind}: ...}}` is not supported yet",
            host=host.name,
            code="not-supported",
            hints=["use `launch: adopt` or `launch: {command: [...]}`"],
        )
    candidates = agent.call("find-servers", {"package": install.package}).value
    if isinstance(launch, LaunchAdopt):
        chosen = choose(candidates, host.name, server, install, rank, nodes)
        require_restorable(chosen, host.name, server)
        return Found(host.name, chosen, _life_of(chosen))
    life = for_host(launch, host, rank, nodes)
    running = [c for c in candidates if _is_run_by(life.argv, tuple(c["argv"]))]
    if not running:
        if rank == 0:
            require_free_port(agent, find_port(server))
        return Found(host.name, None, life)
    if len(running) > 1:
        raise HostError(
            f"the command of server `{server.name}` runs {len(running)} times",
            host=host.name,
            code="server-ambiguous",
            notes=[f"seen: {show(c)}" for c in running],
            hints=["stop all but one of them"],
        )
    require_restorable(running[0], host.name, server)
    return Found(host.name, running[0], _life_of(running[0]))


def _life_of(description: Mapping[str, Any]) -> Life:
    return Life(tuple(description["argv"]), cwd=description["cwd"])


def _is_run_by(command: tuple[str, ...], argv: tuple[str, ...]) -> bool:
    """Whether this command line became that process, itself or through wrappers that exec."""
    if command == argv:
        return True
    head = command[: -len(argv)] if argv else ()
    if not head or command[-len(argv) :] != argv:
        return False
    return PurePosixPath(head[0]).name in _EXEC_WRAPPERS
