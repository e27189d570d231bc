"""What earlier sessions hold on a host: ended where nobody does it, else refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.diagnostics import outcome_text
from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, LaunchCommand, Server
from orchestrator.model.outcome import Outcome
from orchestrator.servers.base import Found, Life, for_host
from orchestrator.session.hosts.contact import show_time, tell_files, tell_server
from orchestrator.session.hosts.held import (
    is_not_from_here,
    tell_holder,
    tell_lease,
    tell_who_ends,
)
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.locating import ABOUT_SERVER, locate
from orchestrator.session.steps.regain import tell_recovered
from orchestrator.session.steps.stages import COMPARE

# Recovery of a leftover runs the whole tail there: stop, revert, start.
_RECOVER_S = 300.0
_STATUS_S = 30.0
_SEE_STATUS = "see `sgldbg status`; `sgldbg revert --all` ends it"
_GONE = "`sgldbg revert --all --gone"
_ASK_FIRST = "if its owner does not need it any more, `sgldbg revert --all` ends it"


def _sessions_here(member: Member) -> list[Mapping[str, Any]]:
    """What sessions left or do on this host; those of machines that share its home are not its, and
    those that it may not act upon are nobody's to end here.

    Also one of which only the lock beside the install is left, once it is known where that is.
    """
    seen = _sessions_seen(member)
    return [left for left in seen if not left.get("elsewhere") and not is_not_from_here(left)]


def _sessions_seen(member: Member) -> list[Mapping[str, Any]]:
    packages = [member.install["package_dir"]] if member.install else []
    value = member.channel.call("status", {"packages": packages}, timeout_s=_STATUS_S).value
    sessions: list[Mapping[str, Any]] = value["sessions"]
    return sessions


def end_leftovers(member: Member) -> str:
    """Finish what dead controllers left on this host: their leases are over, nobody holds them.

    Before anything else is looked at, since a debug life that was left has the server's port. What
    cannot be finished is refused later, where it is on the install that matters. So is a session
    whose server is not back: how it ran would be forgotten with it, and that it does not run would
    count as how it was.
    """
    ended = []
    for left in _sessions_here(member):
        if not left["expired"] or tell_server(left) == "not back":
            continue
        args = {name: left[name] for name in ("session", "host", "lock") if name in left}
        try:
            value = member.channel.call("recover", args, timeout_s=_RECOVER_S).value
        except HostError as error:
            if error.code in ("lost", "timeout"):
                raise
            member.notes.append(error.message)
            continue
        if not value["left"]:
            ended.append(left["session"])
            member.notes.append(f"ended the earlier session `{left['session']}` first")
            if "lost" in value:  # what else would look like a server that did not run before
                member.notes += tell_recovered(value)
    return f"ended {', '.join(ended)}" if ended else "none"


def refuse_leftovers(member: Member) -> None:
    """Refuse an install that a session holds: a patched file must not pass for the original.

    One that its guard has brought to its end, with only its report left, holds nothing any more;
    one of another machine holds it where its lock stands beside it.
    """
    for left in _sessions_seen(member):
        is_abroad = bool(left.get("elsewhere"))
        if is_abroad and not left.get("lock"):
            continue
        if left["root"] == member.install["root"] and not left.get("over"):
            is_held = left.get("ends") is not None
            blame = _in_use_abroad if is_abroad else _held if is_held else _in_use
            raise blame(member.name, left)


def blame_session(
    member: Member, server: Server, install: Install, nodes: int, error: HostError
) -> HostError:
    """The reason why a server cannot be looked at where a session is at work with it.

    It is stopped, or a debug life with other arguments has its port; what the inventory says of
    the install tells whether the session is on this one. Of a session that is not ours to end
    nothing else tells.
    """
    if error.code in ("lost", "timeout"):
        return error
    left = [session for session in _sessions_here(member) if not session.get("over")]
    life = Life(argv=(install.python or "",))
    if isinstance(server.launch, LaunchCommand):
        life = for_host(server.launch, member.host, member.rank, nodes)
    if left or life.argv[0]:
        holder = _find_holder(member, server, install, life)
        if holder is not None:
            return holder
    if not left:
        return error
    error.notes = (*error.notes, *map(_say_whose, left))
    ends = dict.fromkeys(_driven(session)[1] for session in left)
    # Nothing is wrong with the inventory's entry of a server that a session has taken away.
    error.hints = (*([] if error.code in ABOUT_SERVER else error.hints), *ends)
    return error


def _find_holder(member: Member, server: Server, install: Install, life: Life) -> HostError | None:
    """The refusal of an install that somebody holds, found as this life would import it."""
    found, at = member.found, member.install
    member.found = Found(member.name, None, life)
    try:
        member.install = locate(member, server, install)
        refuse_leftovers(member)
    except HostError as refused:
        if refused.code in ("locked", "not-reverted"):
            return refused
    member.found, member.install = found, at
    return None


def _say_whose(left: Mapping[str, Any]) -> str:
    who = f"session `{left['session']}` of {left['holder']}"
    if left["controller"] == "alive" and not left["expired"]:
        return f"{who} is at work on this host"
    return f"{who} is not ended on this host, {_driven(left)[0]}: {_what_is_left(left)}"


def _what_is_left(left: Mapping[str, Any]) -> str:
    return outcome_text(Outcome(left["host"], "look", False, tell_files(left), tell_server(left)))


def _driven(left: Mapping[str, Any]) -> tuple[str, str]:
    """By whom the session is driven now, and how it is ended."""
    if left["expired"]:
        return "its lease is over", _SEE_STATUS
    # What `revert --all` passes over, or takes from somebody who may still want it, is said.
    return {
        "alive": (
            "it is at work",
            "wait for it; `sgldbg revert --all --take` ends it all the same",
        ),
        "detached": ("left so by `sgldbg apply`", _ASK_FIRST),
        "kept": ("left so by `sgldbg keep`", _ASK_FIRST),
    }.get(left["controller"], ("its controller is gone", _SEE_STATUS))


def _in_use_abroad(host: str, left: Mapping[str, Any]) -> HostError:
    who = f"session `{left['session']}` of {left['holder']} since {show_time(left['since'])}"
    return HostError(
        f"the install is in use by {who}",
        host=host,
        code="locked",
        notes=(f"it is of `{left['host']}` (machine `{left['elsewhere']}`), which shares it",),
        hints=(f"it ends there; should that never come back: {_GONE} {left['host']}`",),
    )


def _held(host: str, left: Mapping[str, Any]) -> HostError:
    """An install that somebody holds who does not end by a revert from here."""
    hint = tell_who_ends(left)
    return HostError(
        f"the install is in use: {tell_holder(left)}",
        host=host,
        code="locked",
        notes=(left["why_not"], *(f"{f['path']}: {f['state']}" for f in left["files"])),
        hints=(hint,) if hint else (),
    )


def _in_use(host: str, left: Mapping[str, Any]) -> HostError:
    who = f"session `{left['session']}` of {left['holder']} since {show_time(left['since'])}"
    if left["expired"]:
        return HostError(
            f"the install still holds {who}, whose lease is over",
            host=host,
            code="not-reverted",
            notes=(_what_is_left(left), *(f"{f['path']}: {f['state']}" for f in left["files"])),
            hints=(COMPARE if left["state"] == "drift" else _SEE_STATUS,),
        )
    driven, hint = _driven(left)
    if left["state"] == "drift" and left["controller"] != "alive":
        hint = COMPARE
    left_so = () if left["controller"] == "alive" else (_what_is_left(left),)
    return HostError(
        f"the install is in use by {who}",
        host=host,
        code="locked",
        notes=(f"{driven}, {tell_lease(left)}", *left_so),
        hints=(hint,),
    )
