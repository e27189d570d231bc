"""The stop command of a server that two commands run: when it is over, and what it said."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest

from orchestrator.onhost.agent.server import pair

from .conftest import Stage, wait_for


@pytest.mark.parametrize(
    ("end", "said"),
    [("", []), ("; exit 3", ["`{}` ended with exit status 3: asked"])],
    ids=["done", "failed"],
)
def test_a_stop_that_leaves_something_behind(stage: Stage, tmp_path: Path, end, said):
    """The command's own end counts, whoever holds its output on; what it said is kept."""
    number = tmp_path / "pid"
    words = ["sh", "-c", f"sleep 60 & echo $! >{number}; echo asked{end}"]
    began = time.monotonic()
    found = pair.stop({"stop": words}, 50)
    stage.note(int(number.read_text()))
    assert found == [text.format(shlex.join(words)) for text in said]
    assert time.monotonic() - began < 30


def test_a_stop_that_says_more_than_a_pipe_holds():
    """A talkative command is heard to its end, and its last line is told."""
    words = ["sh", "-c", "yes 0123456789 | head -n 50000; echo last; exit 1"]
    assert pair.stop({"stop": words}, 60) == [
        f"`{shlex.join(words)}` ended with exit status 1: last"
    ]


def test_a_stop_that_does_not_end(tmp_path: Path):
    """It is ended when its time is over, and what it said last is told."""
    script = tmp_path / "down"
    script.write_text("#!/bin/sh\necho waiting\nexec sleep 60\n")
    script.chmod(0o755)
    assert pair.stop({"stop": [str(script)]}, 2) == [f"`{script}` did not end within 2 s: waiting"]


def test_a_stop_that_closes_its_output(tmp_path: Path):
    """The end of its output is not its end."""
    words = ["sh", "-c", f"exec >&- 2>&-; sleep 0.3; : >{tmp_path}/done"]
    assert pair.stop({"stop": words}, 60) == []
    wait_for((tmp_path / "done").exists, "the command's own end")
