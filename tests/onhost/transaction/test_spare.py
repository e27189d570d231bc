"""Originals whose kept ones somebody took away, as `git clean` does: they come back from a copy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.onhost.agent.files import files
from orchestrator.onhost.agent.session import recover
from tests.onhost.transaction.place import EDITED, apply, op, session_of
from tests.onhost.transaction.sweep import clean, differences

LAYERS = "sglang/srt/layers.py"
LLAMA = "sglang/srt/models/llama.py"
EDITED_SINCE = b"# mine\n"


@pytest.fixture
def cleaned(place):
    """A debug life whose checkout was cleaned meanwhile; the session's holder is gone."""
    apply(place, context := place.begin())
    session_of(context).close()
    clean(place)
    return place


def test_the_originals_come_back(cleaned):
    """Bytes, mode, owner, time and attributes; that the inode is another one is said."""
    value = cleaned.recover()
    assert [f["state"] for f in value["files"]] == ["removed", "reverted", "reverted"]
    # That of a file without other links was free, so its number may have come back.
    assert value["files"][1]["why"] == "other than before: inode"
    assert (value["left"], value["verified"]) == ([], True)
    assert differences(cleaned) == []
    assert cleaned.status() == []
    assert not [*Path(cleaned.state).rglob("originals")]


def test_a_revert_that_breaks_off_on_the_way(cleaned, monkeypatch):
    """A half-made original is none: the next try begins anew."""
    real, tried = os.rename, []

    def fail(source, target):
        tried.append(target)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(files.os, "rename", lambda *to: (fail if "-orig" in to[1] else real)(*to))
        left = cleaned.recover()["left"]
    path = cleaned.root / LAYERS
    assert f"{path}: failed, input/output error" in left
    assert str(path.with_name(".layers.py.sgldbg-orig")) in tried
    assert path.read_bytes() == EDITED[LAYERS]
    assert recover.recover(cleaned.directory())["left"] == []
    assert differences(cleaned) == []


def test_a_copy_that_is_damaged(cleaned):
    """No file gets bytes that are not its own."""
    Path(cleaned.directory(), "originals", "2").write_bytes(b"X = 'damaged'\n")
    path = cleaned.root / LAYERS
    assert cleaned.recover()["left"] == [
        f"{path}: failed, still patched, the kept original is gone"
    ]
    assert path.read_bytes() == EDITED[LAYERS]
    assert (cleaned.root / LLAMA).read_bytes() == b"WIDTH = 64\n"


def test_an_edit_after_the_clean(cleaned):
    """It is left alone; the copy is named, and goes nowhere when force lets the file go."""
    (cleaned.root / LAYERS).write_bytes(EDITED_SINCE)
    copy = f"{cleaned.directory()}/originals/2"
    assert cleaned.status()[0]["files"][2]["kept"] == copy
    layers = cleaned.recover()["files"][2]
    assert (layers["state"], layers["kept"]) == ("drift", [copy])
    layers = cleaned.recover(force=True)["files"][2]
    assert (layers["state"], layers["let_go"]) == ("untouched", True)
    assert (cleaned.root / LAYERS).read_bytes() == EDITED_SINCE
    (kept,) = layers["kept"]
    assert Path(kept).read_bytes() == b"X = 'original'\n"


def test_force_where_only_the_kept_original_is_gone(place):
    """With the lock still there it is our install: force puts the copy back, and keeps the edit."""
    apply(place, context := place.begin())
    path = place.root / LAYERS
    path.with_name(".layers.py.sgldbg-orig").unlink()
    path.write_bytes(EDITED_SINCE)
    layers = op(context, "revert")["files"][2]
    why = "it was changed after the swap"
    assert (layers["state"], layers["why"], len(layers["kept"])) == ("drift", why, 1)
    layers = op(context, "revert", force=True)["files"][2]
    assert layers["state"] == "reverted"
    assert Path(*layers["kept"]).read_bytes() == EDITED_SINCE
    op(context, "finish")
    assert differences(place) == []
