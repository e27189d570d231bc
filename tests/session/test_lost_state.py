"""A host whose state directory goes away in the middle of a session."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.session.command import call, once, told
from tests.session.world import Project, World, wait_for


def test_the_guard_undoes_it(
    single: World, small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run fails and says why; the host is as it was without anybody's help."""
    target = single.target("demo-0")
    original = target.with_name(f".{target.name}.sgldbg-orig")

    def lose() -> None:
        shutil.rmtree(single.state_dir("demo-0"))
        wait_for(lambda: not original.exists(), "the guard")

    hook = once(("demo-0", "arm", "done"), lose)
    result = call(monkeypatch, "run", small.write(), "--runs", tmp_path / "runs", hook=hook)
    cause, end = told(result.err, tmp_path).split("demo-0: files are", 1)
    assert (result.code, end) == (
        6,
        " as they were, server is as it was\n"
        "demo-0: its guard had reverted it by itself: the session's directory was lost:"
        " 2 of 2 files put back, all verified\n"
        "run directory: TMP/runs/TIME-eagle3-zero-acceptance\n",
    )
    # A heartbeat may fall into the moment before the guard believes in the loss.
    assert cause in (
        "error: demo-0 missed its heartbeats: the session's lease is gone\n",
        "error: lost the host: the agent ended\n --> host demo-0\nthe last lines from the host:\n"
        "  | (the process ended with status 137)\n",
    )
    single.assert_as_before()


def test_nothing_but_the_lock_is_left(
    single: World, small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a guard the files come back from the lock's word; the server is named, exit code 7.

    How it ran was in the lost directory only, so its debug life's command line is shown.
    """
    inventory = ("--inventory", tmp_path / "project" / "inventory.yaml")
    assert call(monkeypatch, "apply", small.write(), "--runs", tmp_path / "runs").code == 0
    target = single.target("demo-0")
    package = target.parents[2]
    os.kill(json.loads((package / ".sgldbg-lock").read_text())["guard"]["pid"], signal.SIGKILL)
    (directory,) = single.state_dir("demo-0").glob("sessions/*/demo-0")
    wait_for(lambda: not single.helpers("demo-0"), "the guard's end")
    shutil.rmtree(single.state_dir("demo-0"))

    seen = call(monkeypatch, "status", *inventory)
    ended = call(monkeypatch, "revert", "--all", *inventory)

    where = told(str(package), tmp_path)
    gone = told(str(directory), tmp_path)
    kept = f"{where}/srt/models/.{target.name}.sgldbg-orig"
    assert (seen.code, told(seen.out, tmp_path).splitlines()) == (
        7,
        [
            "demo-0: session ID-eagle3-zero-acceptance of USER@HOST since WHEN:"
            " patched, its directory is lost, its lease is over, guard dead, server unknown",
            f"demo-0:   known from {where}/.sgldbg-lock, {gone} is gone",
            f"demo-0:   {where}/_sgldbg.py: patched",
            f"demo-0:   {where}/srt/models/{target.name}: patched",
            f"demo-0:     its original is {kept}",
        ],
    )
    said, hint = told(ended.err, tmp_path).splitlines()
    before, argv, after = said.rsplit("`", 2)
    assert ended.code == 7
    assert before == (
        "demo-0: files are as they were, server is not back (its directory was lost: undone from"
        f" `{where}/.sgldbg-lock`; how its server ran was lost with it, so it was not started;"
        " the debug life ran as "
    )
    assert "-m sglang.launch_server --model-path" in argv
    assert after == ")"
    assert hint == (
        "hint: start its server by hand: how it ran was only written in the lost directory"
    )
    assert single.files == single.cluster.snapshot()
    single.assert_nothing_left()
    assert call(monkeypatch, "status", *inventory).out == "demo-0: nothing is left\n"
