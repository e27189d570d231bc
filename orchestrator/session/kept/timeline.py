"""Keeps what happens when in a run's directory, and tells it on."""

from __future__ import annotations

import time

from orchestrator.session.hosts.fleet import Progress
from orchestrator.session.kept.rundir import RunDir

NAME = "timeline.jsonl"


class Timeline:
    """A `Progress` that writes one line per event and passes everything on.

    `at_s` counts from the run's beginning, `wall_s` is the controller's clock.
    """

    def __init__(self, run_dir: RunDir, onward: Progress) -> None:
        self._run_dir = run_dir
        self._onward = onward
        self._began = time.monotonic()

    def stage(self, host: str, stage: str, state: str, text: str = "") -> None:
        """A stage of a host began, ended or failed."""
        self._write(host=host, stage=stage, state=state, text=text)
        self._onward.stage(host, stage, state, text)

    def note(self, text: str) -> None:
        """Something that concerns the whole session."""
        self._write(text=text)
        self._onward.note(text)

    def leave(self, text: str) -> None:
        """The end of the process, on its way."""
        self._write(text=text)
        self._onward.leave(text)

    def _write(self, **event: str) -> None:
        at_s = round(time.monotonic() - self._began, 3)
        self._run_dir.append(NAME, {"at_s": at_s, "wall_s": round(time.time(), 3), **event})
