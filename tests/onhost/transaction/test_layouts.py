"""Installs of other shapes: links, links into source trees, file systems and users with limits."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from orchestrator.onhost.agent.refusal import Refusal
from tests.onhost.transaction.place import EDITED, op, stage

LAYERS = "sglang/srt/layers.py"
LLAMA = "sglang/srt/models/llama.py"


def session(place, context):
    """Stage, swap, revert, finish; what `stage` said of its files."""
    staged = stage(place, context)["files"]
    op(context, "swap")
    for name, data in EDITED.items():
        assert (place.root / name).read_bytes() == data
    value = op(context, "revert")
    assert value["verified"], value
    op(context, "finish")
    return staged, value


def test_a_tree_of_links(place):
    """A strict editable install: the real files change and come back, the links stay links."""
    tree = place.top / "links"
    for source in place.package_dir.rglob("*.py"):
        link = tree / source.relative_to(place.root)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source)
    real = place.root
    place.root = tree
    place.package_dir = tree / "sglang"
    args, raw = place.stage_args(runtime=False)
    place.root = real
    place.before = place.tree()
    context = place.begin()
    value = op(context, "stage", raw, **args)
    assert [item["path"] for item in value["files"]] == [str(real / name) for name in EDITED]
    # One lock is enough to keep out whoever comes through the sources.
    second = place.begin(session="s2")
    with pytest.raises(Refusal, match="is held by ann@desk"):
        stage(place, second)
    op(context, "swap")
    assert (tree / LAYERS).read_bytes() == EDITED[LAYERS]
    assert (tree / LAYERS).is_symlink()
    op(context, "revert")
    op(context, "finish")
    assert place.changes() == []
    assert sorted(p.name for p in (tree / "sglang").iterdir()) == ["__init__.py", "srt"]


def test_where_links_are_not_allowed(place, monkeypatch):
    """Without link(2) the original is kept as a copy, said so; all but the inode comes back."""

    def refuse(*args, **kw):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    staged, value = session(place, place.begin())
    assert [item["kept"] for item in staged] == [None, "copy", "copy"]
    assert [item["why"] for item in value["files"]] == [
        "",
        "other than before: inode",
        "other than before: inode",
    ]
    left = [line for line in place.changes() if ": inode was" not in line]
    assert left == [
        # The cache still has the inode that both names had before.
        "cache/llama.py: nlink was 2, is 1",
        f"site/{LLAMA}: nlink was 2, is 1",
    ]


def test_a_read_only_file(place):
    """Mode bits of a file do not matter to a rename, and come back as they were."""
    os.chmod(place.root / LAYERS, 0o444)
    place.before = place.tree()
    session(place, place.begin())
    assert place.changes() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: other owners")
def test_an_owner_other_than_us(place):
    """Staged and created files belong to whom the originals and the directory belong to."""
    for path in [place.package_dir, *place.package_dir.rglob("*")]:
        os.chown(path, 1234, 4321)
    place.before = place.tree()
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    for name in [*EDITED, "sglang/_sgldbg.py"]:
        seen = os.stat(place.root / name)
        assert (seen.st_uid, seen.st_gid) == (1234, 4321)
    op(context, "revert")
    op(context, "finish")
    assert place.changes() == []


def test_a_file_under_two_names(place):
    """Two names of one file cannot be two files of a plan."""
    (place.root / "sglang/alias.py").symlink_to(place.root / LAYERS)
    context = place.begin()
    edits = {LAYERS: b"1", "sglang/alias.py": b"2"}
    with pytest.raises(Refusal) as refused:
        stage(place, context, edits=edits)
    assert refused.value.message == "two files of the plan are one and the same file"


def test_a_package_that_is_not_there(place):
    """No package directory, no session on it."""
    args, raw = place.stage_args()
    shutil.rmtree(place.package_dir)
    with pytest.raises(Refusal) as refused:
        op(place.begin(), "stage", raw, **args)
    assert (refused.value.code, refused.value.message) == (
        "missing",
        f"there is no package directory `{place.package_dir}`",
    )


def test_what_a_dead_session_left_beside_a_file(place):
    """Names of ours without a journal of ours are never taken for ours."""
    left = place.root / "sglang/srt/.layers.py.sgldbg-orig"
    left.write_bytes(b"?")
    place.before = place.tree()
    with pytest.raises(Refusal) as refused:
        stage(place, place.begin())
    assert (refused.value.code, refused.value.message) == (
        "exists",
        f"`{left}` is there already, left by a session that never ended",
    )
    assert place.changes() == []
