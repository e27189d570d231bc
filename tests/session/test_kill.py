"""A controller that dies without a word: every host reverts and restarts its server by itself."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.session.command import call, start
from tests.session.world import Project, World, wait_for

# What a run tells of its first host, in its order and each time it does; `test_success.py` compares
# it with a whole run, so that a new stage cannot be forgotten here.
STAGES = (
    "connect",
    "leftovers",
    "look",
    "check",
    "begin",
    "stage",
    "describe",
    "announce",
    "stop",
    "swap",
    "effective",
    "probes",
    "start",
    "follow",
    "ready",
    "arm",
    "workers",
    "exercise",
    "stop",
    "revert",
    "restore",
    "collect",
    "ready again",
    "finish",
)
LEASE_S = 4.0
# Beyond lease and grace: the guards stop a server, revert, and start the original.
WORK_S = 25.0


def seed_of_today() -> str:
    """One seed for all workers of a run: `SGLDBG_SEED`, else the hour."""
    return os.environ.get("SGLDBG_SEED") or time.strftime("%Y%m%d%H")


def slice_of_today() -> list[int]:
    """Where two of the stages are."""
    return random.Random(seed_of_today()).sample(range(len(STAGES)), 2)


@pytest.mark.parametrize("place", range(2))
def test_killed_at_some_stages(
    world: World,
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: int,
) -> None:
    """A rotating slice of the sweep below."""
    number = slice_of_today()[place]
    print(f"SGLDBG_SEED={seed_of_today()}: killed at `{STAGES[number]}`", file=sys.stderr)
    check_killed_at(world, project, tmp_path, monkeypatch, number)


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(len(STAGES)), ids=lambda number: STAGES[number])
def test_killed_at_every_stage(
    world: World, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Wherever the controller dies, the hosts are as they were soon after lease and grace."""
    check_killed_at(world, project, tmp_path, monkeypatch, number)


def check_killed_at(
    world: World,
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """SIGKILL when a stage is told of the first host, while the second may be in it."""
    stage = STAGES[number]
    project.session["lease"] = f"{LEASE_S:g}s"
    session = project.write()
    with start("run", session, "--runs", tmp_path / "runs") as running:
        running.wait_line(f"demo-0: {stage} done", times=STAGES[: number + 1].count(stage))
        running.send(signal.SIGKILL)
        running.end()
    wait_for(
        world.is_back,
        f"the guards, after the controller was killed at `{stage}`",
        2 * LEASE_S + WORK_S,
    )
    inventory = ("--inventory", project.folder / "inventory.yaml")
    # A guard says what it did once it is done.
    wait_for(lambda: call(monkeypatch, "status", *inventory).code == 0, "all guards' reports")
    status = call(monkeypatch, "status", *inventory)
    left = world.find_differences() != []
    assert not left or "guard: the lease ran out: " in status.out, status.out
    ended = call(monkeypatch, "revert", "--all", *inventory)
    assert ended.code == 0, ended.err
    world.assert_as_before()


def test_the_next_run_works(
    single: World, small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a dead controller left is ended first, even where its guard is gone as well."""
    small.session["lease"] = "3s"
    session = small.write()
    with start("run", session, "--runs", tmp_path / "runs") as running:
        running.wait_line("demo-0: start done")
        (line,) = [line for line in running.lines if "begin done" in line]
        guard = int(line.rpartition(" ")[2].rstrip(")"))
        os.kill(guard, signal.SIGKILL)
        running.send(signal.SIGKILL)
        running.end()
    inventory = ("--inventory", small.folder / "inventory.yaml")
    wait_for(
        lambda: "its lease is over" in call(monkeypatch, "status", *inventory).out, "the lease"
    )
    result = call(monkeypatch, "run", session, "--runs", tmp_path / "runs")
    single.assert_as_before()
    assert result.code == 1, result.err
    assert "demo-0: ended the earlier session `" in result.err
