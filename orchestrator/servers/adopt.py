"""Which of the servers that run on a host is the one that the inventory means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, LaunchAdopt, Server
from orchestrator.servers.life import Life, find_value, join, shown

# What `sglang.launch_server` listens on when it is not told.
DEFAULT_PORT = 30000
_SHOWN_CHARACTERS = 200

Public = Mapping[str, Any]


def find_port(server: Server) -> int:
    """The port of a server's address."""
    parts = urlsplit(server.url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def choose(
    candidates: Sequence[Public], host: str, server: Server, install: Install, rank: int, nodes: int
) -> Public:
    """The one main process that is this server's on this host.

    Raises `HostError` `server-not-found` or `server-ambiguous`, which list what was seen.
    """
    port = find_port(server)
    if rank == 0:
        wanted = f"on port {port}"
        fitting = [c for c in candidates if _node_rank(c) in (None, 0)]
        found = [c for c in fitting if port in c["ports"]] or [
            c for c in fitting if _port_argument(c) == port
        ]
    else:
        wanted = f"with `--node-rank {rank}`"
        found = [c for c in candidates if _node_rank(c) == rank and _nodes(c) in (None, nodes)]
        if not found and len(candidates) == 1 and _node_rank(candidates[0]) is None:
            found = list(candidates)  # its rank may stand in a file or in its environment
    if len(found) == 1:
        return found[0]
    what = f"of `{install.package}` runs {wanted}"
    notes = [f"seen: {show(c)}" for c in candidates]
    if found:
        raise HostError(
            f"more than one server {what}",
            host=host,
            code="server-ambiguous",
            notes=notes,
            hints=["stop the one that is not meant, or give each its own port"],
        )
    raise HostError(
        f"no server {what}",
        host=host,
        code="server-not-found",
        notes=notes or [f"no server of `{install.package}` runs there at all"],
        hints=[
            f"start it, or correct `url` and `hosts` of server `{server.name}` in the inventory",
            "to have it started for the session, write `launch: {command: [...]}`",
        ],
    )


def require_restorable(found: Public, host: str, server: Server) -> None:
    """Raises `HostError` `not-restorable` where a server could not be given back as it is."""
    output = server.launch.output if isinstance(server.launch, LaunchAdopt) else None
    if found["restorable"] or (found["needs_output"] and output):
        return
    hints = ["to have it started for the session, write `launch: {command: [...]}`"]
    if found["needs_output"]:
        hints = ["start it with its output in a file"]
        if isinstance(server.launch, LaunchAdopt):
            hints.append(
                "or name a file for the restored server: `launch: {adopt: {output: FILE}}`"
            )
    raise HostError(
        f"server `{server.name}` could not be started again as it is: {found['why']}",
        host=host,
        code="not-restorable",
        notes=[f"seen: {show(found)}"],
        hints=hints,
    )


def show(found: Public) -> str:
    """One line about a main process, with secrets masked."""
    ports = ", ".join(str(port) for port in found["ports"]) or "none"
    line = join(shown(Life(tuple(found["argv"]))))
    if len(line) > _SHOWN_CHARACTERS:
        line = line[: _SHOWN_CHARACTERS - 3] + "..."
    return f"pid {found['pid']} of {found['user']}, listening on {ports}: {line}"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _node_rank(found: Public) -> int | None:
    return _number(find_value(found["argv"], "--node-rank"))


def _nodes(found: Public) -> int | None:
    return _number(find_value(found["argv"], "--nnodes"))


def _port_argument(found: Public) -> int:
    return _number(find_value(found["argv"], "--port")) or DEFAULT_PORT
