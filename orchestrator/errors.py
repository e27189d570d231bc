"""The errors of the orchestrator: data first, text in `diagnostics`."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.model.outcome import Outcome
from orchestrator.model.source import Span


class OrchestratorError(Exception):
    """An error that a user can act on: one lower-case sentence, places, and hints to follow.

    Who knows the final state of the hosts sets `exit_code`; else it follows from the class.
    """

    exit_code: int | None = None

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        notes: Sequence[str] = (),
        hints: Sequence[str] = (),
        outcomes: Sequence[Outcome] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.notes = tuple(notes)
        self.hints = tuple(hints)
        self.outcomes = tuple(outcomes)

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross from the patching process to the controller, whole and of their own type."""
        return (_restore, (type(self), self.args, self.__dict__))


def _restore(
    kind: type[OrchestratorError], args: tuple[object, ...], data: dict[str, object]
) -> OrchestratorError:
    error = kind.__new__(kind, *args)  # `__init__` would ask for what `data` holds
    error.__dict__.update(data)
    return error


class FileError(OrchestratorError):
    """A YAML file is wrong. Several problems of one file travel together in `FileErrors`."""


class FileErrors(FileError):
    """All problems of all files of one command, in order of place."""

    def __init__(self, problems: Sequence[FileError]) -> None:
        super().__init__(f"{len(problems)} problem{'' if len(problems) == 1 else 's'}")
        self.problems = tuple(problems)


class PatchError(OrchestratorError):
    """A patch does not fit a source. `state` is one of `docs/reference/patch-states.md`:

    `not found`, `ambiguous`, `already there`, `out of range`, `refused`, `conflict`, `capture`,
    `parse`, `lossy`, `proof`, `engine`. `host` and `file` are filled in by whoever knows them.
    `others` are further places that do not fit, each a whole error.
    """

    def __init__(
        self,
        message: str,
        *,
        state: str,
        span: Span | None = None,
        notes: Sequence[str] = (),
        hints: Sequence[str] = (),
        file: str = "",
        hosts: Sequence[str] = (),
        others: Sequence[PatchError] = (),
    ) -> None:
        super().__init__(message, span=span, notes=notes, hints=hints)
        self.state = state
        self.file = file
        self.hosts = tuple(hosts)
        self.others = tuple(others)


class StandsAlreadyError(PatchError):
    """All that an edit would bring stands in the file as it is; nothing is left to do for it."""


class HostError(OrchestratorError):
    """A host refused or was not reached.

    `code` is the agent's word for it (`docs/reference/agent-protocol.md`) or one of the
    transport's: `unreachable`, `host-key-unknown`, `host-key-changed`, `auth`, `no-python`,
    `bootstrap`, `lost`. `tail` holds the last lines of what the host said, `trace` the remote
    traceback of an unforeseen failure.
    """

    def __init__(
        self,
        message: str,
        *,
        host: str,
        code: str,
        notes: Sequence[str] = (),
        hints: Sequence[str] = (),
        tail: Sequence[str] = (),
        trace: str = "",
        data: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message, notes=notes, hints=hints)
        self.host = host
        self.code = code
        self.tail = tuple(tail)
        self.trace = trace
        self.data = data or {}


class FleetError(OrchestratorError):
    """Several hosts failed in one stage; `errors` holds the whole error of every one of them."""

    def __init__(self, message: str, errors: Sequence[HostError]) -> None:
        super().__init__(message)
        self.errors = tuple(errors)


class DiskError(OrchestratorError):
    """The controller's own disk does not take what a command has to keep."""


class SessionError(OrchestratorError):
    """A session failed; `outcomes` say what state every host is in."""


class RevertIncompleteError(SessionError):
    """At least one host is still patched, drifted, unknown, or its server is not back.

    `remaining` names, per host, what is left. `errors` are the reasons, the first cause first;
    their text stands before that of this error.
    """

    def __init__(
        self,
        message: str,
        *,
        outcomes: Sequence[Outcome],
        remaining: Sequence[str],
        notes: Sequence[str] = (),
        hints: Sequence[str] = (),
        errors: Sequence[OrchestratorError] = (),
    ) -> None:
        super().__init__(message, outcomes=outcomes, notes=notes, hints=hints)
        self.remaining = tuple(remaining)
        self.errors = tuple(errors)
