"""What became of each host, as a value; the exit code follows from the worst of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Exit codes; DESIGN names them, `docs/reference/exit-codes.md` explains them."""

    DONE = 0
    NOT_AS_EXPECTED = 1
    USAGE = 2
    FILE = 3
    PATCH = 4
    REFUSED = 5
    SESSION = 6
    NOT_RESTORED = 7
    OUR_BUG = 70
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one host in one stage. `state` is said of the host's files and server:

    `untouched` nothing was written · `staged` · `patched` · `reverted` as it was before · `let go`
    the same, but for files that are somebody else's and need nothing more · `drifted` · `unknown`.
    `server` is `untouched` · `stopping` · `stopped` · `debug life` · `restored` as it was before ·
    `differs`: it runs again, but not in all as it did · `left stopped` as the session file asks ·
    `not back` · `unknown`.
    """

    host: str
    stage: str
    ok: bool
    state: str = "untouched"
    server: str = "untouched"
    message: str = ""
    hints: tuple[str, ...] = ()
    value: Any = field(default=None, compare=False)


def is_as_before(outcomes: Sequence[Outcome]) -> bool:
    """Whether every host has its own files and its own server again.

    Also one with a file that is somebody else's by now and was let go: no revert has more to do
    there. Also one that differs: how a start command of the user's runs it is theirs to say, and no
    further revert would change it.
    """
    return all(
        o.state in ("untouched", "reverted", "let go")
        and o.server in ("untouched", "restored", "differs", "left stopped")
        for o in outcomes
    )


def tell_differences(outcome: Outcome, differences: Sequence[str]) -> Outcome:
    """The outcome of a host whose server, where it is back, differs in this from before."""
    if outcome.server != "restored" or not differences:
        return outcome
    said = [outcome.message, *differences]
    return replace(outcome, server="differs", message="; ".join(text for text in said if text))
