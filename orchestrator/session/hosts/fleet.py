"""Fan-out: one step on all hosts at once, and every host's answer kept."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from orchestrator.errors import HostError
from orchestrator.model.outcome import Outcome
from orchestrator.session.hosts.member import Member

# More threads than this only queue on the controller's interpreter lock; a fleet of 32 hosts is
# served by one round.
_THREADS = 32
# How soon a stage that may be left notices that the end is asked for.
_GLANCE_S = 0.05

Act = Callable[[Member], object]


class Progress(Protocol):
    """Who is told what happens; called from several threads."""

    def stage(self, host: str, stage: str, state: str, text: str = "") -> None:
        """A stage of a host began (`running`), ended (`done`) or `failed`."""

    def note(self, text: str) -> None:
        """Something that concerns the whole session."""

    def leave(self, text: str) -> None:
        """Say this and end the process at once, with hosts in any state: so its user wants it."""


class FleetFailure(Exception):
    """A stage failed on at least one host; the others have finished theirs."""

    def __init__(self, stage: str, errors: Sequence[HostError]) -> None:
        super().__init__(f"{stage} failed on {', '.join(e.host for e in errors)}")
        self.stage = stage
        self.errors = tuple(errors)


class Cancelled(Exception):
    """The user, a broken fleet lease or a dead server ends the session; `reason` says which.

    `error` is the whole of it, where there is more to say.
    """

    def __init__(self, reason: str, interrupted: bool, error: HostError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.interrupted = interrupted
        self.error = error


class Stop:
    """A wish to end that every wait looks at; the first reason wins."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self.reason = ""
        self.interrupted = False
        self.error: HostError | None = None

    def set(self, reason: str, *, interrupted: bool, error: HostError | None = None) -> None:
        """Ask for the end; safe from any thread, but not from a signal handler."""
        with self._lock:
            if not self._event.is_set():
                self.reason, self.interrupted, self.error = reason, interrupted, error
                self._event.set()

    def is_set(self) -> bool:
        """Whether the session shall end."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep, or less when the end is asked for."""
        return self._event.wait(seconds)

    def check(self) -> None:
        """Raise `Cancelled` when the end is asked for."""
        if self._event.is_set():
            raise Cancelled(self.reason, self.interrupted, self.error)


class Fleet:
    """The hosts of one session, driven together. `bugs` are failures that no host can cause.

    `pause` says in words that this program stood still until a lease was over; else it is empty.
    """

    def __init__(self, members: Sequence[Member], progress: Progress) -> None:
        self.members = tuple(members)
        self.progress = progress
        self.stop = Stop()
        self.bugs: list[Exception] = []
        self.pause = ""

    def each(
        self,
        stage: str,
        act: Act,
        members: Sequence[Member] | None = None,
        *,
        may_leave: bool = False,
    ) -> None:
        """Do one stage on all members.

        Raises `FleetFailure` with the errors of every member that failed, `Cancelled` when the
        end is asked for. Nobody is left half-way then, except in a stage that changes nothing on
        the host (`may_leave`): that one is not waited for.
        """
        self.stop.check()
        bugs = len(self.bugs)
        errors = self.attempt(stage, self._leaving(act) if may_leave else act, members)
        if len(self.bugs) > bugs:
            raise self.bugs[bugs]
        # What fails after the end was asked for is a consequence, such as a link that was given up.
        self.stop.check()
        causes = [e for e in errors if e.code != "cancelled"]
        if causes:
            raise FleetFailure(stage, causes)

    def attempt(
        self, stage: str, act: Act, members: Sequence[Member] | None = None
    ) -> list[HostError]:
        """As `each`, but failures are returned and a wish to end is not looked at.

        A bug of ours on one host is a failure like any other: the others must get their turn.
        """
        chosen = self.members if members is None else tuple(members)
        if not chosen:
            return []

        def run(member: Member) -> HostError | None:
            self.progress.stage(member.name, stage, "running")
            try:
                text = act(member)
            except HostError as error:
                failure = error
            except Exception as bug:
                self.bugs.append(bug)
                failure = _bug_error(member.name, stage, bug)
            else:
                said = text if isinstance(text, str) else ""
                self.progress.stage(member.name, stage, "done", said)
                return None
            if member.error is None or member.error is failure:
                member.error = failure
            else:  # the first error is the reason, later ones are often its consequences
                member.notes.append(failure.message)
            self.progress.stage(member.name, stage, "failed", failure.message)
            return failure

        with ThreadPoolExecutor(min(_THREADS, len(chosen)), f"sgldbg-{stage}") as pool:
            return [error for error in pool.map(run, chosen) if error is not None]

    def outcomes(self, stage: str) -> tuple[Outcome, ...]:
        """Every host's state, in rank order."""
        return tuple(m.outcome(stage) for m in self.members)

    def _leaving(self, act: Act) -> Act:
        """The same in a thread of its own, which is left alone once the end is asked for."""

        def run(member: Member) -> object:
            done: list[object] = []
            failed: list[Exception] = []

            def work() -> None:
                try:
                    done.append(act(member))
                except Exception as error:
                    failed.append(error)

            thread = threading.Thread(target=work, name=f"sgldbg-{member.name}", daemon=True)
            thread.start()
            while thread.is_alive() and not self.stop.is_set():
                thread.join(_GLANCE_S)
            if failed:
                raise failed[0]
            if done:
                return done[0]
            raise HostError("was given up", host=member.name, code="cancelled")

        return run


def _bug_error(host: str, stage: str, bug: Exception) -> HostError:
    return HostError(
        f"a bug of sgldbg in `{stage}`: {type(bug).__name__}: {bug}",
        host=host,
        code="bug",
        trace="".join(traceback.format_exception(bug)),
    )
