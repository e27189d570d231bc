"""The timeline of a run, and a controller's disk that takes no more."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.session.kept.rundir import RunDir
from orchestrator.session.kept.timeline import NAME, Timeline


class Heard:
    """What was told on."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def stage(self, host: str, stage: str, state: str, text: str = "") -> None:
        self.told.append((host, stage, state, text))

    def note(self, text: str) -> None:
        self.told.append((text,))


def test_every_event_is_written_and_told_on(tmp_path: Path) -> None:
    """A line per event, in order, with the seconds since the run began."""
    run_dir, heard = RunDir.create(tmp_path, "s", "20260101-000000"), Heard()
    timeline = Timeline(run_dir, heard)

    timeline.stage("gpu0", "swap", "running")
    timeline.stage("gpu0", "swap", "done", "2 files")
    timeline.note("warning: w")

    rows = [json.loads(line) for line in (run_dir.path / NAME).read_text().splitlines()]
    assert [{k: v for k, v in r.items() if not k.endswith("_s")} for r in rows] == [
        {"host": "gpu0", "stage": "swap", "state": "running", "text": ""},
        {"host": "gpu0", "stage": "swap", "state": "done", "text": "2 files"},
        {"text": "warning: w"},
    ]
    assert [r["at_s"] for r in rows] == sorted(r["at_s"] for r in rows)
    assert heard.told == [
        ("gpu0", "swap", "running", ""),
        ("gpu0", "swap", "done", "2 files"),
        ("warning: w",),
    ]


def test_a_full_disk_of_the_controller_stops_nothing(tmp_path: Path) -> None:
    """What cannot be written is passed over, told on all the same, and named at the end."""
    run_dir, heard = RunDir.create(tmp_path, "s", "20260101-000000"), Heard()
    (run_dir.path / NAME).symlink_to("/dev/full")

    Timeline(run_dir, heard).stage("gpu0", "revert", "done")

    assert heard.told == [("gpu0", "revert", "done", "")]
    assert run_dir.problem == f"{run_dir.path / NAME} is not whole: no space left on device"
