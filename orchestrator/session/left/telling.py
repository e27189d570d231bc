"""What became of a host, or stands in the way there, in one outcome."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.model.outcome import Outcome, is_as_before
from orchestrator.session.hosts.contact import (
    Contact,
    is_abroad,
    is_of_earlier_machine,
    tell_files,
    tell_server,
)
from orchestrator.session.hosts.held import tell_holder, tell_who_ends
from orchestrator.session.left.parts import Left, Part

GONE = "if `%s` never comes back: `sgldbg revert --all --gone %s`"


def state_of(left: Left) -> str:
    """The word of `Outcome` for what the host says of the files."""
    if any(f["state"] == "patched" for f in left["files"]):
        return "patched"
    return "staged" if left["files"] else "untouched"


def busy(part: Part) -> Outcome:
    """A session that a live controller drives: left to that one."""
    left = part.left
    message = (
        f"session `{left['session']}` of {left['holder']} is at work; end it there, or take it"
        " with --take"
    )
    return Outcome(part.name, "revert", False, tell_files(left), tell_server(left), message)


def held(part: Part) -> Outcome:
    """A session that holds an install there, and is nobody's to end from here."""
    left, hint = part.left, tell_who_ends(part.left)
    message = f"{tell_holder(left)}: {left['why_not']}"
    hints = (hint,) if hint else ()
    return Outcome(part.name, "revert", False, tell_files(left), tell_server(left), message, hints)


def sum_up(contact: Contact, outcomes: Sequence[Outcome], reached: set[str]) -> Outcome:
    """The worst of a host's outcomes, and what is to be said where there is none."""
    name = contact.host.name
    if contact.agent is None:
        return unreached(contact, "revert")
    alone = [
        left
        for left in contact.sessions
        if (is_abroad(left) and left["host"] not in reached) or is_of_earlier_machine(contact, left)
    ]
    if alone and not outcomes:
        return _left_alone(contact, alone[0])
    if not outcomes:
        others = [
            f"session `{left['session']}` is of the machine `{left['elsewhere']}`, end it there"
            for left in contact.sessions
            if left.get("elsewhere") and left["host"] not in reached
        ]
        return Outcome(name, "revert", True, message="; ".join(["nothing was left", *others]))
    bad = [o for o in outcomes if not o.ok or not is_as_before([o])]
    return (bad or list(outcomes))[0]


def _left_alone(contact: Contact, left: Left) -> Outcome:
    """What a host that did not answer, or an earlier machine of one that did, holds there."""
    message = (
        f"session `{left['session']}` is of `{left['host']}` (machine `{left['elsewhere']}`), which"
        " did not answer"
    )
    if is_of_earlier_machine(contact, left):
        message = (
            f"session `{left['session']}` is of the machine `{left['elsewhere']}`, not of this"
        )
    hint = GONE % (left["host"], left["host"])
    state = state_of(left)
    return Outcome(contact.host.name, "revert", False, state, "untouched", message, (hint,))


def unreached(contact: Contact, stage: str) -> Outcome:
    """A host that could not be asked."""
    error = contact.error
    message, hints = (error.message, error.hints) if error else ("", ())
    return Outcome(contact.host.name, stage, False, "unknown", "unknown", message, hints)
