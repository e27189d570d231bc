"""How a run ended, as a value, and the exit code that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.diagnostics import outcome_text
from orchestrator.errors import (
    DiskError,
    FileError,
    OrchestratorError,
    PatchError,
    RevertIncompleteError,
)
from orchestrator.model.outcome import ExitCode, Outcome, is_as_before
from orchestrator.model.record import Verdict
from orchestrator.session.steps.regain import START_BY_HAND


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one run. `cause` is why it failed, `bug` is a failure of our own.

    `applied` says that the hosts were left patched on purpose, to their guards; `changed` that a
    server was stopped.
    """

    session_id: str
    question: str
    outcomes: tuple[Outcome, ...]
    verdict: Verdict | None
    cause: OrchestratorError | None
    bug: Exception | None
    interrupted: bool
    applied: bool
    changed: bool
    run_dir: Path | None

    @property
    def exit_code(self) -> ExitCode:
        """From the worst final state, not from the error's class."""
        if self.applied and self.cause is None:
            return ExitCode.DONE
        if not is_as_before(self.outcomes):
            return ExitCode.NOT_RESTORED
        if self.bug is not None:
            return ExitCode.OUR_BUG
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.cause is not None:
            return _failure_code(self.cause, self.changed)
        # No answer is none that holds.
        if self.verdict is not None and self.verdict.holds:
            return ExitCode.DONE
        return ExitCode.NOT_AS_EXPECTED

    def remaining(self) -> tuple[str, ...]:
        """What is left to do, a line per host that is not as it was."""
        return tuple(_remaining(o) for o in self.outcomes if not is_as_before([o]))

    def without_end(self, errors: Sequence[OrchestratorError]) -> RevertIncompleteError:
        """The error of a run that left a host other than it was; `errors` are the reasons."""
        return RevertIncompleteError(
            "not every host is as it was",
            outcomes=tuple(replace(o, message="", hints=()) for o in self.outcomes),
            remaining=self.remaining(),
            errors=errors,
        )


def _failure_code(cause: OrchestratorError, changed: bool) -> ExitCode:
    if isinstance(cause, FileError):
        return ExitCode.FILE
    if isinstance(cause, PatchError):
        return ExitCode.PATCH
    if isinstance(cause, DiskError):  # no host has refused anything
        return ExitCode.SESSION
    return ExitCode.SESSION if changed else ExitCode.REFUSED


def _remaining(outcome: Outcome) -> str:
    """What the user has to do about one host."""
    if outcome.state == "drifted":
        todo = (
            "compare the files; `sgldbg revert --all --force` puts the originals back, and keeps"
            " what stands there now"
        )
    elif "unknown" in (outcome.state, outcome.server):
        todo = "`sgldbg status` when it answers again, then `sgldbg revert --all`"
    elif START_BY_HAND in outcome.hints:
        todo = START_BY_HAND
    elif outcome.state in ("untouched", "reverted", "let go"):
        todo = (
            "its server was to run again as it did before: mend what stands in its way, then run"
            " `sgldbg revert --all`, which waits for it again"
        )
    else:
        todo = "`sgldbg revert --all`"
    return f"{outcome.host}: {todo}"


def outcome_line(outcome: Outcome) -> str:
    """One host's state in a sentence; hosts with the same sentence are folded when shown."""
    return outcome_text(outcome)


def states(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Host to sentence, for messages and `--json`."""
    return {o.host: outcome_line(o) for o in outcomes}
