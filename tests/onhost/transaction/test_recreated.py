"""An install that was made anew under a session: an image started again, a package reinstalled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.session import guard, recover
from tests.onhost.transaction.lost import leave_debug_life
from tests.onhost.transaction.place import NOBODY, op, stage

LAYERS = "sglang/srt/layers.py"
LLAMA = "sglang/srt/models/llama.py"


@pytest.fixture
def recreated(place):
    """The package as the image has it, with other inodes and nothing of ours."""
    shutil.copytree(place.root, place.top / "image", symlinks=True)
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    context.session.close()
    shutil.rmtree(place.root)
    shutil.copytree(place.top / "image", place.root, symlinks=True)
    return place


def contents(place):
    """The bytes of every file below the package."""
    return {
        str(path.relative_to(place.root)): path.read_bytes()
        for path in place.root.rglob("*")
        if path.is_file()
    }


def test_the_same_image(recreated):
    """The originals are there already: nothing is written, the session ends."""
    before = contents(recreated)
    (seen,) = recreated.status()
    assert seen["state"] == "gone, the install was made anew"
    assert {f["state"] for f in seen["files"]} == {"original"}
    value = recreated.recover()
    assert (value["left"], value["verified"]) == ([], True)
    assert contents(recreated) == before


def test_another_image(recreated):
    """Another release is never written over; the session is named until force lets it go."""
    for name in (LAYERS, LLAMA):
        (recreated.root / name).write_bytes(b"X = 'of 2.0'\n")
    before = contents(recreated)
    value = recreated.recover()
    why = "it was changed after the swap"
    assert value["left"] == [f"{recreated.root}/{name}: drift, {why}" for name in (LLAMA, LAYERS)]
    copies = [f"{recreated.directory()}/originals/{number}" for number in (1, 2)]
    assert [f["kept"] for f in value["files"]] == [[], *([copy] for copy in copies)]
    value = recover.recover(recreated.directory(), force=True)
    assert value["left"] == []
    assert [f["why"] for f in value["files"][1:]] == [
        "left as it is: the install was made anew, nothing of the session is in it"
    ] * 2
    kept = [Path(path) for file in value["files"][1:] for path in file["kept"]]
    assert [path.name for path in kept] == ["2-llama.py", "1-layers.py"]
    assert [path.read_bytes() for path in kept] == [b"WIDTH = 64\n", b"X = 'original'\n"]
    assert contents(recreated) == before
    assert recreated.status() == []


def test_a_disk_that_comes_back(place):
    """While the whole install is gone no server is started on it, and the guard tries again."""
    leave_debug_life(place)
    place.expire(agent=NOBODY)
    away = place.root.rename(place.top / "away")
    session = recover.take_over(place.directory(), lease.GUARD, 5.0)
    watching = guard._Guard(place.directory())
    assert not watching._undo(session, "the lease ran out")
    assert place.servers() == []
    away.rename(place.root)
    assert watching._undo(session, "the lease ran out")
    session.close()
    assert place.changes() == []
    assert place.servers() == place.originals() != []
