"""Sessions known by a lock that may not, or cannot, be acted upon: whose, and who ends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.session.hosts.contact import show_time

# Where no revert of this user from here ends a session; a guard that is about to leaves it to us.
_NOT_FROM_HERE = ("user", "there", "hand")
_WHO_ENDS = {
    "user": (
        "what is the user `{user}`'s is ended as that user: `sgldbg revert --all`; how root does it"
        " in their place: docs/guides/when-a-revert-fails.md"
    ),
    "guard": "what a guard is about to undo ends by itself",
    "there": "a session whose processes are not seen from here is ended where it was begun",
    "hand": (
        "what cannot be read no revert ends: put the files back by hand,"
        " docs/guides/when-a-revert-fails.md"
    ),
}
_ROOTS = "what is root's is ended as root: `sgldbg revert --all`"


def is_not_from_here(left: Mapping[str, Any]) -> bool:
    """Whether the host knows of a session by a lock that it may not, or cannot, act upon."""
    return left.get("ends") in _NOT_FROM_HERE


def tell_who_ends(left: Mapping[str, Any]) -> str | None:
    """Who ends a session that no revert from here does, as a hint; null for one that it does."""
    ends, user = left.get("ends"), left.get("user")
    if ends is None:
        return None
    return _ROOTS if user == "root" else _WHO_ENDS[ends].format(user=user)


def tell_holder(left: Mapping[str, Any]) -> str:
    """Who holds an install, since and until when, for a session that is known by its lock alone."""
    if not left["session"]:
        return f"`{left['lock']}` holds its install"
    who = f"session `{left['session']}` of {left['holder']} since {show_time(left['since'])}"
    return f"{who}, {tell_end(left)}"


def tell_end(left: Mapping[str, Any]) -> str:
    """Until when such a session may hold its install, by what is seen from outside."""
    if left["expired"]:
        return "its lease is over"
    if not left["session"]:
        return "for an unknown time"
    until = left.get("until")
    return "kept without an end" if until is None else f"until {show_time(until)} by its last word"


def tell_lease(left: Mapping[str, Any]) -> str:
    """What comes of an unfinished session whose lease is not over, if nobody does anything."""
    if left["deadline_s"] is None:
        return "without an end"
    left_s = max(0, round(left["deadline_s"] - left["now_s"]))
    if left["guard"] == "dead" and left["controller"] != "alive":
        return f"its lease ends in {left_s} s, nobody is left to revert it then"
    if left["state"] == "drift":
        return f"its lease ends in {left_s} s, what drifted stays"
    return f"reverts by itself in {left_s} s"
