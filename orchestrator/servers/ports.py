"""Refusing a server whose port somebody else has, or would have once it is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.servers.life import Life


def require_port(
    agent: AgentClient, port: int, running: Mapping[str, Any] | None, life: Life
) -> None:
    """Raises `HostError` `port-taken` where `life` could not listen once `running` is gone.

    Only sockets of others count, and those only that take an address of the server's; nothing is
    changed on the host.
    """
    key = {name: running[name] if running else None for name in ("pid", "start_time")}
    cwd = life.cwd or (running["cwd"] if running else None)
    rivals = agent.call("rivals", {**key, "port": port, "argv": list(life.argv), "cwd": cwd}).value
    if rivals:
        notes = _explain(rivals, is_running=running is not None)
        raise port_taken(agent.host, port, [r["owner"] for r in rivals], notes)


def port_taken(host: str, port: int, owners: Sequence[str], notes: Sequence[str] = ()) -> HostError:
    """The error of a port that others have."""
    return HostError(
        f"port {port} is taken by {' and '.join(dict.fromkeys(owners))}",
        host=host,
        code="port-taken",
        notes=notes,
        hints=["stop that process, or give the server another port"],
    )


def _explain(rivals: Sequence[Mapping[str, Any]], *, is_running: bool) -> list[str]:
    """How sockets at other addresses are in the way, and what shares the server's own."""
    notes = []
    for address, wanted in [(r["address"], r["wanted"]) for r in rivals if r["wanted"]]:
        if address != wanted:
            notes.append(
                f"it listens on {address}, the server on {wanted}: there cannot be both on one port"
            )
        elif is_running:
            notes.append(
                f"both listen on {address} (SO_REUSEPORT): nobody knows whom a request reaches"
            )
    return list(dict.fromkeys(notes))
