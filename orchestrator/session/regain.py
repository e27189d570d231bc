"""Brings a lost host back into the session, or finds out what its guard did meanwhile."""

from __future__ import annotations

import time
from typing import Any

from orchestrator.agent.ship import open_agent
from orchestrator.errors import HostError
from orchestrator.session.member import Member
from orchestrator.transport.base import Transport

_CONNECT_S = 10.0
_RETRY_S = 1.0
_RECOVER_S = 300.0


def is_lost(member: Member) -> bool:
    """Whether the channel to the host is gone, or so mute that it may as well be."""
    if member.agent is None or member.agent.lost is not None:
        return True
    try:
        member.agent.call("renew", {"lease_s": member.lease_s}, timeout_s=3.0)
    except HostError as error:
        return error.code in ("lost", "timeout", "fenced")
    return False


def regain(transport: Transport, session_id: str, member: Member, until_s: float) -> bool:
    """Open a new channel and take the session over again, until monotonic time `until_s`.

    True when this channel holds the lease again. False when the guard has ended the session
    there (the member's state says how), or when the host stayed out of reach.
    """
    while True:
        try:
            return _once(transport, session_id, member)
        except HostError as error:
            member.error = error
            if time.monotonic() >= until_s:
                member.state = member.server = "unknown"
                return False
        time.sleep(_RETRY_S)


def _once(transport: Transport, session_id: str, member: Member) -> bool:
    if member.agent is not None:
        member.agent.close()
    member.agent = open_agent(transport, member.host, timeout_s=_CONNECT_S)
    mine = {"session": session_id, "host": member.name}
    try:
        member.agent.call("attach", mine, timeout_s=_CONNECT_S)
    except HostError as error:
        if error.code in ("lost", "timeout", "unreachable"):
            raise
    else:
        member.error = None
        member.notes.append("came back on a new connection")
        return True
    _ask_guard(member, mine)
    return False


def _ask_guard(member: Member, mine: dict[str, str]) -> None:
    """The guard has taken over: finish what it left and take its word for the state."""
    value: dict[str, Any] = member.channel.call("recover", mine, timeout_s=_RECOVER_S).value
    member.begun = False
    if value["verified"]:
        member.state, member.error = "reverted", None
        member.server = "restored" if member.stopping else "untouched"
        member.notes.append("its guard had reverted it by itself")
    else:
        member.state = "drifted"
        member.error = HostError(
            "its guard could not revert everything",
            host=member.name,
            code="not-reverted",
            notes=tuple(f"{f['path']}: {f['state']}" for f in value["files"]),
        )
