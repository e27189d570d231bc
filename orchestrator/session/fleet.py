"""Fan-out: one step on all hosts at once, and every host's answer kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from orchestrator.errors import HostError
from orchestrator.model.outcome import Outcome
from orchestrator.session.member import Member

# More threads than this only queue on the controller's interpreter lock; a fleet of 32 hosts is
# served by one round.
_THREADS = 32


class Progress(Protocol):
    """Who is told what happens; called from several threads."""

    def stage(self, host: str, stage: str, state: str, text: str = "") -> None:
        """A stage of a host began (`running`), ended (`done`) or `failed`."""

    def note(self, text: str) -> None:
        """Something that concerns the whole session."""


class FleetFailure(Exception):
    """A stage failed on at least one host; the others have finished theirs."""

    def __init__(self, stage: str, errors: Sequence[HostError]) -> None:
        super().__init__(f"{stage} failed on {', '.join(e.host for e in errors)}")
        self.stage = stage
        self.errors = tuple(errors)


class Cancelled(Exception):
    """The user, or a broken fleet lease, wants the session to end; `reason` says which."""

    def __init__(self, reason: str, interrupted: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.interrupted = interrupted


class Stop:
    """A wish to end that every wait looks at; the first reason wins."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self.reason = ""
        self.interrupted = False

    def set(self, reason: str, *, interrupted: bool) -> None:
        """Ask for the end; safe from any thread and from a signal handler."""
        with self._lock:
            if not self._event.is_set():
                self.reason, self.interrupted = reason, interrupted
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
            raise Cancelled(self.reason, self.interrupted)


class Fleet:
    """The hosts of one session, driven together."""

    def __init__(self, members: Sequence[Member], progress: Progress) -> None:
        self.members = tuple(members)
        self.progress = progress
        self.stop = Stop()

    def each(
        self, stage: str, act: Callable[[Member], object], members: Sequence[Member] | None = None
    ) -> None:
        """Do one stage on all members; none is left half-way when this returns or raises.

        Raises `FleetFailure` with the errors of every member that failed. A wish to end is looked
        at before and after, never by abandoning a member in the middle.
        """
        self.stop.check()
        errors = self.attempt(stage, act, members)
        # Who only gave up because another one failed, or the user asked, is not a cause.
        causes = [e for e in errors if e.code != "cancelled"]
        if causes:
            raise FleetFailure(stage, causes)
        self.stop.check()

    def attempt(
        self, stage: str, act: Callable[[Member], object], members: Sequence[Member] | None = None
    ) -> list[HostError]:
        """As `each`, but failures are returned and a wish to end is not looked at."""
        chosen = self.members if members is None else tuple(members)
        if not chosen:
            return []

        def run(member: Member) -> HostError | None:
            self.progress.stage(member.name, stage, "running")
            try:
                text = act(member)
            except HostError as error:
                member.error = error
                self.progress.stage(member.name, stage, "failed", error.message)
                return error
            self.progress.stage(member.name, stage, "done", text if isinstance(text, str) else "")
            return None

        with ThreadPoolExecutor(min(_THREADS, len(chosen)), f"sgldbg-{stage}") as pool:
            return [error for error in pool.map(run, chosen) if error is not None]

    def outcomes(self, stage: str) -> tuple[Outcome, ...]:
        """Every host's state, in rank order."""
        return tuple(m.outcome(stage) for m in self.members)
