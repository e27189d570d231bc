"""Brings a lost host back into the session, or finds out what its guard did meanwhile."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from orchestrator.agent.ship import open_agent
from orchestrator.errors import HostError
from orchestrator.servers.base import Life, join, shown
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps import stages
from orchestrator.transport.base import Transport

_CONNECT_S = 10.0
_RETRY_S = 1.0
_RECOVER_S = 300.0
_ASK_S = 3.0
# A guard looks ten times a second and waits half a second before it believes in a loss; then it
# writes the directory anew before anything else.
_GUARD_SEES_S = 5.0

# How a guard's report begins the line about what it could not put back.
GUARD_LEFT = "left: "
START_BY_HAND = "start its server by hand: how it ran was only written in the lost directory"


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
        value = _attach(member, mine)
    except HostError as error:
        if error.code == "missing" and _is_over(member, error):
            _take_as_ended(member)
        elif error.code == "missing":
            _take_as_lost(member, mine)
        elif error.code == "fenced":
            _ask_guard(member, mine)
        else:
            raise
        return
    member.epoch = value["epoch"]
    member.silent_since_s = time.monotonic()
    member.error = None
    member.notes.append("came back on a new connection")


def _attach(member: Member, mine: dict[str, Any]) -> Any:
    """Take the session over; a host whose guard must have seen by now that it is lost may wait."""
    until_s = time.monotonic() + _GUARD_SEES_S
    while True:
        try:
            args = mine | {"epoch": member.epoch}
            return member.channel.call("attach", args, timeout_s=_CONNECT_S).value
        except HostError as error:
            lost = error.code == "missing" and not _is_over(member, error)
            if not lost or time.monotonic() >= until_s:
                raise
        time.sleep(_RETRY_S / 4)


def _is_over(member: Member, error: HostError) -> bool:
    """Whether a session that is not there was ended, or had not begun to change anything."""
    return bool(error.data.get("ended")) or not (member.staged or member.stopping)


def _take_as_lost(member: Member, mine: dict[str, Any]) -> None:
    """The host has lost its journal, and its guard: what the lock beside the install says is left.

    Without one, what it held can neither be proven nor undone from here.
    """
    member.begun, member.life = False, None
    member.state = member.server = "unknown"
    root = member.install.get("package_dir")
    sessions = member.channel.call("status", {"packages": [root] if root else []}).value["sessions"]
    found = [s for s in sessions if s.get("lock") and mine.items() <= s.items()]
    text = "the session's directory is gone from this host, with the journal that would undo it"
    hints: tuple[str, ...] = (
        "put the state directory back and run `sgldbg revert --all`, or undo it by hand:"
        " docs/guides/when-a-revert-fails.md",
    )
    notes: tuple[str, ...] = ()
    if found:
        args = mine | {"lock": found[0]["lock"]}
        value = member.channel.call("recover", args, timeout_s=_RECOVER_S).value
        member.state = stages.name_state(value)
        member.server = name_server(value, found[0])
        member.differences = find_differences(value)
        text = "the session's directory was lost on this host"
        notes = tuple(tell_recovered(value))
        hints = (START_BY_HAND,) if member.server == "not back" else ()
    member.error = HostError(text, host=member.name, code="lost-state", hints=hints, notes=notes)


def name_server(value: Mapping[str, Any], left: Mapping[str, Any]) -> str:
    """The word of `Outcome` for the server after a `recover` with this value; `left` is what
    `status` said before it.
    """
    if left["server"] == "untouched":
        return "untouched"
    return "restored" if value["server"] or not left["ran"] else "not back"


def is_held(value: Mapping[str, Any]) -> bool:
    """Whether a `recover` with `hold` has left the session open until its server is seen to run."""
    return value["server"] is not None and not value["left"]


def find_differences(value: Mapping[str, Any]) -> tuple[str, ...]:
    """In what the server that a `recover` found or started differs from the original."""
    return tuple((value["server"] or {}).get("differences", ()))


def tell_recovered(value: Mapping[str, Any]) -> list[str]:
    """What a guard did, what is kept or not in all as it was, and what a `recover` left,
    each once.

    Of what the guard had to leave only that is told which is left still.
    """
    done = [text for text in value["report"] if not text.startswith(GUARD_LEFT)]
    differences = find_differences(value)
    if differences:  # these are told with the state of the server
        done = [text.removesuffix(f" ({'; '.join(differences)})") for text in done]
    files = [*stages.tell_kept(value), *stages.tell_apart(value)]
    return list(dict.fromkeys([*done, *tell_lost(value), *files, *value["left"]]))


def tell_lost(value: Mapping[str, Any]) -> list[str]:
    """How the debug life of a lost session ran, which is all that is known; secrets are masked."""
    lives = [Life(tuple(argv)) for argv in value.get("lost") or ()]
    return [f"the debug life ran as `{join(shown(life))}`" for life in lives]


def _take_as_ended(member: Member) -> None:
    """No session is there any more: it never began, or was ended, which takes a proven revert."""
    member.begun, member.error, member.life = False, None, None
    if member.staged or member.stopping:
        member.state = "reverted"
        if member.server not in ("not back", "left stopped"):
            member.server = "restored" if member.is_down else "untouched"
        member.notes.append("the session had been ended there")


def _ask_guard(member: Member, mine: dict[str, Any]) -> None:
    """The guard has taken over: finish what it left and take its word for the state."""
    args = mine | {"hold": True}
    value: dict[str, Any] = member.channel.call("recover", args, timeout_s=_RECOVER_S).value
    member.begun, member.life = False, value["server"]
    member.held = is_held(value)
    member.differences = find_differences(value)
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
    member.state = stages.name_state(value) if member.staged else "untouched"
    member.error = None
    # That the lease ran out needs no word; what else made it act does.
    why = [text for text in value["report"][:1] if not text.startswith("the lease ran out")]
    member.notes.append(": ".join(["its guard had reverted it by itself", *why]))
    if member.is_down:
        member.server = "restored" if value["server"] or not member.ran else "not back"
