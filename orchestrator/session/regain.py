"""Brings a lost host back into the session, or finds out what its guard did meanwhile."""

from __future__ import annotations

import time
from typing import Any

from orchestrator.agent.ship import open_agent
from orchestrator.errors import HostError
from orchestrator.session import stages
from orchestrator.session.member import Member
from orchestrator.transport.base import Transport

_CONNECT_S = 10.0
_RETRY_S = 1.0
_RECOVER_S = 300.0
_ASK_S = 3.0


def is_lost(member: Member) -> bool:
    """Whether the channel to the host is gone, or so mute that it may as well be."""
    if member.agent is None or member.agent.lost is not None:
        return True
    try:
        member.agent.call("renew", {"lease_s": member.lease_s}, timeout_s=_ASK_S)
    except HostError as error:
        return error.code in ("lost", "timeout", "fenced")
    return False


def regain(transport: Transport, session_id: str, member: Member, until_s: float) -> None:
    """Open a new channel and take the session over again, until monotonic time `until_s`.

    Afterwards `begun` says whether this channel holds the lease again. Where it does not, the
    session has ended there and the member's state says how, or is `unknown` with an error where
    the host stayed out of reach.
    """
    while True:
        try:
            _once(transport, session_id, member)
            return
        except HostError as error:
            member.error = error
            # One that somebody else has taken up is waited for as well: it will be ended there.
            if time.monotonic() >= until_s:
                member.state = member.server = "unknown"
                return
        time.sleep(_RETRY_S)


def _once(transport: Transport, session_id: str, member: Member) -> None:
    if member.agent is not None:
        member.agent.close()
    member.agent = open_agent(transport, member.host, timeout_s=_CONNECT_S)
    mine: dict[str, Any] = {"session": session_id, "host": member.name}
    try:
        value = member.agent.call(
            "attach", mine | {"epoch": member.epoch}, timeout_s=_CONNECT_S
        ).value
    except HostError as error:
        if error.code == "missing" and _is_over(member, error):
            _take_as_ended(member)
        elif error.code == "missing":
            _take_as_unknown(member)
        elif error.code == "fenced":
            _ask_guard(member, mine)
        else:
            raise
        return
    member.epoch = value["epoch"]
    member.silent_since_s = time.monotonic()
    member.error = None
    member.notes.append("came back on a new connection")


def _is_over(member: Member, error: HostError) -> bool:
    """Whether a session that is not there was ended, or had not begun to change anything."""
    return bool(error.data.get("ended")) or not (member.staged or member.stopping)


def _take_as_unknown(member: Member) -> None:
    """The host has lost its journal: what it held can neither be proven nor undone from here."""
    member.begun = False
    member.state = member.server = "unknown"
    member.error = HostError(
        "the session's directory is gone from this host, with the journal that would undo it",
        host=member.name,
        code="lost-state",
        hints=(
            "put the state directory back and run `sgldbg revert --all`, or undo it by hand:"
            " docs/guides/when-a-revert-fails.md",
        ),
    )


def _take_as_ended(member: Member) -> None:
    """No session is there any more: it never began, or was ended, which takes a proven revert."""
    member.begun, member.error = False, None
    if member.staged or member.stopping:
        member.state = "reverted"
        if member.server not in ("not back", "left stopped"):
            member.server = "restored" if member.is_down else "untouched"
        member.notes.append("the session had been ended there")


def _ask_guard(member: Member, mine: dict[str, Any]) -> None:
    """The guard has taken over: finish what it left and take its word for the state."""
    value: dict[str, Any] = member.channel.call("recover", mine, timeout_s=_RECOVER_S).value
    member.begun = False
    if value["left"] or not value["verified"]:
        member.state = stages.name_state(value)
        if member.is_down:
            member.server = "restored" if value["server"] else "not back"
        member.error = HostError(
            "its guard could not put everything back",
            host=member.name,
            code="not-reverted",
            notes=tuple(value["left"]),
        )
        return
    member.state = "reverted" if member.staged else "untouched"
    member.error = None
    member.notes.append("its guard had reverted it by itself")
    if member.is_down:
        member.server = "restored" if value["server"] or not member.ran else "not back"
