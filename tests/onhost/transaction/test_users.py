"""Several users on one host: who may do what, and what the second one is told."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from orchestrator.onhost.agent.held import lock
from orchestrator.onhost.agent.refusal import Refusal
from tests.onhost.transaction.place import Place, op, stage, wait_for

ANOTHER = 1234
LAYERS = "sglang/srt/layers.py"


@pytest.fixture
def open_place(monkeypatch):
    """A host whose install every user can reach; pytest's own directories are closed to others."""
    if os.geteuid() != 0:
        pytest.skip("needs root: another user")
    top = Path(tempfile.mkdtemp(prefix="sgldbg-users-"))
    monkeypatch.setattr("tempfile.tempdir", str(top / "tmp"))
    (top / "tmp").mkdir()
    for folder in (top, top / "tmp"):
        folder.chmod(0o777)
    place = Place(top)
    (place.root / LAYERS).chmod(0o644)
    place.before = place.tree()
    yield place
    place.end_processes()
    shutil.rmtree(top)


@contextlib.contextmanager
def another_user():
    """Be somebody else for a while."""
    os.setegid(ANOTHER)
    os.seteuid(ANOTHER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def second(place):
    """A session of the other user, in a state directory of their own."""
    place.state = str(place.top / "second")
    return place.begin(session="s2")


def show(seconds):
    """A time as messages show it."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def test_the_lock_of_another_user(open_place):
    """The second user learns holder, since and until, though the first one's state is closed."""
    place = open_place
    first = place.begin()
    stage(place, first)
    before = place.tree()
    with another_user():
        context = second(place)
        with pytest.raises(Refusal) as refused:
            stage(place, context)
        op(context, "finish")
    data = refused.value.data
    assert refused.value.message == (
        f"`{place.package_dir}` is held by ann@desk (session `s1`) since {show(data['since'])}"
        f" until {show(data['until'])}"
    )
    assert 0 < data["until"] - time.time() <= 60
    assert place.tree() == before
    op(first, "revert")
    op(first, "finish")
    assert place.changes() == []


def test_the_lock_of_another_user_whose_time_is_over(open_place):
    """Whether it was renewed stands where only its user looks: so it is the lock's word alone."""
    place = open_place
    first = place.begin()
    op(first, "renew", lease_s=2.0)
    stage(place, first)
    until = lock.read(str(place.package_dir / ".sgldbg-lock"))["until"]
    wait_for(lambda: time.time() > until)
    with another_user():
        context = second(place)
        with pytest.raises(Refusal) as refused:
            stage(place, context)
        op(context, "finish")
    assert refused.value.message.endswith(f" until {show(until)} by its last word")


def test_files_of_another_owner(open_place):
    """Who cannot give a file back to its owner is refused, although links and renames work."""
    place = open_place
    for path in [place.package_dir, *place.package_dir.rglob("*")]:
        if path.is_dir():
            os.chown(path, ANOTHER, ANOTHER)
    place.before = place.tree()
    with another_user():
        context = second(place)
        with pytest.raises(Refusal) as refused:
            stage(place, context, edits={LAYERS: b"X = 2\n"}, runtime=False)
        op(context, "finish")
    assert (refused.value.code, refused.value.message) == (
        "not-permitted",
        f"cannot stage `{LAYERS}`: operation not permitted",
    )
    assert place.changes() == []


def test_a_link_that_the_kernel_protects(open_place):
    """fs.protected_hardlinks: an owner's own file is linked, a foreign one is refused, never half.

    The planned bytes of a foreign file cannot get its owner, which is found before it is kept.
    """
    place = open_place
    for path in [place.package_dir, *place.package_dir.rglob("*")]:
        os.chown(path, ANOTHER, ANOTHER)
    place.before = place.tree()
    with another_user():
        context = second(place)
        value = stage(place, context)
        assert [item["kept"] for item in value["files"]] == [None, "link", "link"]
        op(context, "swap")
        assert op(context, "revert")["verified"]
        op(context, "finish")
    assert place.changes() == []
