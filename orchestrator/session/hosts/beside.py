"""A thread beside each member, for as long as a block runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from orchestrator.session.hosts.fleet import Fleet
from orchestrator.session.hosts.member import Member


class Beside(ABC):
    """Calls `_run` for every member, each in a thread of its own (a context manager).

    When the block is left `_over` is set; each thread is then waited for, `patience_s` at most,
    and none keeps the process alive. `word` is what they are named after.
    """

    def __init__(self, fleet: Fleet, word: str, patience_s: float) -> None:
        self._fleet = fleet
        self._over = threading.Event()
        self._word = word
        self._patience_s = patience_s
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def _run(self, member: Member) -> None:
        """The work for one member; ends soon after `_over` is set."""

    def __enter__(self) -> Self:
        for member in self._fleet.members:
            self._start(f"{self._word}-{member.name}", self._run, member)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in list(self._threads):
            thread.join(self._patience_s)

    def _start(self, name: str, work: Callable[..., None], *args: object) -> threading.Thread:
        """One more thread that the end of the block waits for."""
        thread = threading.Thread(target=work, args=args, name=f"sgldbg-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread
