"""What a long start says of itself while somebody waits for it without a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from orchestrator.cli import live
from orchestrator.cli.live import LiveProgress

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
    progress = LiveProgress(["gpu01", "gpu02"], Console(file=text))
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


@pytest.mark.parametrize(
    ("term", "width", "draws"),
    [("xterm", 80, True), ("xterm", 34, True), ("xterm", 33, False), ("dumb", 80, False)],
)
def test_a_terminal_that_takes_no_table_gets_lines(term: str, width: int, draws: bool):
    """As a pipe does: one that cannot move its cursor, and one too narrow for the hosts' names."""
    text = io.StringIO()
    environ = {"TERM": term, "COLUMNS": str(width)}
    console = Console(file=text, force_terminal=True, _environ=environ, legacy_windows=False)
    with LiveProgress(["demo-0", "demo-1"], console) as progress:
        progress.stage("demo-0", "swap", "done", "2 files")
        progress.stage("demo-1", "swap", "running")
        told = text.getvalue()
    drawn = text.getvalue()
    assert ("demo-0: swap done (2 files)" in told, "\x1b[?25l" in drawn) == (not draws, draws)
    assert not draws or drawn.count("demo-0") == drawn.count("demo-1") > 0
