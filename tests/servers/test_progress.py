"""What a long start says of itself while somebody waits for it without a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from orchestrator.cli import live

TOLD = [
    ("starting its workers", True),
    ("loading weights: 1 of 163", True),
    ("loading weights: 2 of 163", False),
    ("loading weights: 163 of 163", False),
    ("weights loaded", True),
    ("capturing graphs: 1 of 35", True),
    ("capturing graphs: 2 of 35", False),
]


def test_counts_do_not_flood_a_log(monkeypatch: pytest.MonkeyPatch):
    """Each stage is told at once, a count that goes on every ten seconds, the end in any case."""
    text = io.StringIO()
    now = 100.0
    monkeypatch.setattr(live.time, "monotonic", lambda: now)
    progress = live.LiveProgress(["gpu01", "gpu02"], Console(file=text))
    for stage, _ in TOLD:
        now += 1.0
        progress.stage("gpu01", "ready", "running", stage)
    now += 9.0
    progress.stage("gpu01", "ready", "running", "capturing graphs: 20 of 35")
    progress.stage("gpu02", "ready", "running", "capturing graphs: 21 of 35")
    progress.stage("gpu01", "ready", "done", "12 s")
    lines = [line.partition("] ")[2] for line in text.getvalue().splitlines()]
    assert lines == [
        *[f"gpu01: ready running ({stage})" for stage, told in TOLD if told],
        "gpu01: ready running (capturing graphs: 20 of 35)",
        "gpu02: ready running (capturing graphs: 21 of 35)",
        "gpu01: ready done (12 s)",
    ]
