"""Two sessions at once: never on one install, always on two."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.session.command import call, start, told
from tests.session.world import Project, World


@pytest.mark.parametrize("stage", ["stage", "ready"])
def test_the_second_run_is_refused(
    single: World, small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Who holds the install, since when and until when; the first one is not disturbed.

    Also when the server has been stopped, or the debug life has its port.
    """
    small.session["until"] |= {"count": 1000, "timeout": "4s"}
    session = small.write()
    with start("run", session, "--runs", tmp_path / "runs") as running:
        running.wait_line(f"demo-0: {stage} done")
        second = call(monkeypatch, "run", session, "--runs", tmp_path / "runs")
        first = running.end()
    single.assert_as_before()
    assert (second.code, told(second.err, tmp_path)) == (
        5,
        "error: the install is in use by session `ID-eagle3-zero-acceptance` of USER@HOST since"
        " WHEN\n"
        " --> host demo-0\n"
        "note: it is at work, reverts by itself in N s\n"
        "hint: wait for it; `sgldbg revert --all --take --inventory TMP/project/inventory.yaml`"
        " ends it all the same\n"
        "demo-0: nothing was written, server was not touched\n"
        "run directory: TMP/runs/TIME-eagle3-zero-acceptance\n",
    )
    assert first.code == 1, first.err


def test_installs_of_one_machine_do_not_meet(
    world: World, single: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers of one machine are debugged at the same time."""
    small = Project(tmp_path / "small", single.cluster)
    project = Project(tmp_path / "project", world.cluster)
    project.write()
    with start("run", small.write(), "--runs", tmp_path / "runs") as running:
        running.wait_line("demo-0: connect done")
        began = time.monotonic()
        other = call(monkeypatch, "run", project.session_file, "--runs", tmp_path / "runs")
        assert time.monotonic() - began < 60.0
        mine = running.end()
    world.assert_as_before()
    single.assert_as_before()
    assert (mine.code, other.code) == (1, 1), mine.err + other.err
