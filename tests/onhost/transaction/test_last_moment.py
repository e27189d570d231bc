"""Nothing is replaced that could not be put back, and no server starts on what is still patched."""

from __future__ import annotations

import json
import os

import pytest

from orchestrator.onhost.agent.files import files, shared
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import begin, recover
from tests.onhost.transaction.lost import lose_copies
from tests.onhost.transaction.place import HOST, NOBODY, SESSION, no_guard, op, stage

LAYERS = "sglang/srt/layers.py"


def kept_of(place):
    """Where the original of the last file lies."""
    return (place.root / LAYERS).with_name(".layers.py.sgldbg-orig")


def on_intent(step, work):
    """Do something while the intent line of a step on that file is being made durable."""

    def on_line(record):
        told = (record["kind"], record.get("step"), record.get("file"))
        if told == ("intent", step, LAYERS):
            work()

    return on_line


def upgrade(place):
    """Replace the file as a package manager does."""
    draft = place.root / "draft"
    draft.write_bytes(b"UPGRADED = 1\n")
    os.replace(draft, place.root / LAYERS)


@pytest.mark.parametrize("how", ["is gone", "is not the original any more"])
def test_no_swap_without_the_original(place, how):
    """The swap refuses before its first file where an original could not be put back."""
    context = place.begin()
    stage(place, context)
    kept = kept_of(place)
    kept.unlink()
    if how != "is gone":
        kept.write_bytes(b"X = 'else'\n")
    with pytest.raises(Refusal) as refused:
        op(context, "swap")
    assert (refused.value.code, refused.value.message) == (
        "not-kept",
        f"`{kept}`, which `{place.root / LAYERS}` would be put back from, {how}",
    )
    assert op(context, "revert")["verified"]
    op(context, "finish")
    assert not [line for line in place.changes() if "nlink" not in line]


def test_a_change_while_the_line_is_written(place):
    """What somebody puts there at the last moment is not replaced, and stays after the revert."""
    context = place.begin(on_line=on_intent("swap:file", lambda: upgrade(place)))
    stage(place, context)
    with pytest.raises(Refusal) as refused:
        op(context, "swap")
    assert (refused.value.code, refused.value.data["file"]) == ("changed", LAYERS)
    value = op(context, "revert")
    layers = value["files"][-1]
    assert (layers["state"], layers["why"], value["verified"]) == (
        "untouched",
        "somebody else changed it before the swap",
        True,
    )
    assert (place.root / LAYERS).read_bytes() == b"UPGRADED = 1\n"
    op(context, "finish")


class Killed(BaseException):
    """As SIGKILL: nothing more is done and nothing written."""


def killed_before_the_rename(place):
    """A session whose journal says that the last file is swapped, which never happened."""

    def kill():
        raise Killed

    context = place.begin(on_line=on_intent("swap:file", kill))
    stage(place, context)
    with pytest.raises(Killed):
        op(context, "swap")
    context.session.close()


def test_a_change_after_a_kill_before_the_rename(place):
    """Written in place, the kept original is another name of the same new bytes: no drift."""

    killed_before_the_rename(place)
    (place.root / LAYERS).write_bytes(b"WRITTEN = 1\n")
    value = place.recover()
    layers = value["files"][-1]
    assert (layers["state"], layers["why"], value["left"]) == (
        "untouched",
        "somebody else changed it before the swap",
        [],
    )
    assert (place.root / LAYERS).read_bytes() == b"WRITTEN = 1\n"
    assert [line.partition(" was ")[0] for line in place.changes()] == [
        f"site/{LAYERS}: {what}" for what in ("mtime_ns", "sha256")
    ]


def test_a_swap_that_is_taken_up_again(place):
    """Killed while compiled files were aside: their directory gets the time of before both."""

    def kill():
        raise Killed

    context = place.begin(on_line=on_intent("swap:file", kill))
    stage(place, context)
    with pytest.raises(Killed):
        op(context, "swap")
    context.session.close()
    again = Context(place.state)
    again.session = begin.attach(place.state, SESSION, HOST, no_guard)
    op(again, "swap")
    asides = json.loads((place.package_dir / ".sgldbg-lock").read_text())["pycs"][LAYERS]
    assert [len(aside["files"]) for aside in asides] == [2]
    assert op(again, "revert")["verified"]
    op(again, "finish")
    assert place.changes() == []


def test_a_change_while_the_original_is_read(place, monkeypatch):
    """A version that appears while a revert looks at the original is not overwritten."""
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    look = files.look

    def late(path):
        found = look(path)
        if path == str(kept_of(place)):
            monkeypatch.setattr(files, "look", look)
            upgrade(place)
        return found

    monkeypatch.setattr(files, "look", late)
    layers = op(context, "revert")["files"][-1]
    assert (layers["state"], layers["why"]) == ("drift", "it was changed after the swap")
    assert (place.root / LAYERS).read_bytes() == b"UPGRADED = 1\n"


@pytest.fixture
def down(place):
    """A patched host whose original is stopped and whose holder is gone."""
    main = place.start_server()
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    context.session.close()
    place.expire(agent=NOBODY)
    return place


def test_no_original_over_a_file_that_stays_patched(down):
    """With the kept original gone its file stays patched: the server stays down, both are named."""
    saved = kept_of(down).read_bytes()
    kept_of(down).unlink()
    lose_copies(down)
    value = recover.recover(down.directory())
    path = down.root / LAYERS
    why = "still patched, the kept original is gone"
    assert value["left"] == [f"{path}: failed, {why}"]
    assert (value["verified"], value["server"], down.originals()) == (False, None, [])
    path.write_bytes(saved)  # as somebody who has the package would
    value = recover.recover(down.directory())
    assert (value["left"], value["verified"]) == ([], True)
    assert len(down.originals()) == 1


def test_no_original_after_a_revert_that_broke_off(down, monkeypatch):
    """What a revert did not get to may be patched still: the disk decides, and says so."""

    def fail(*args, **kwargs):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(shared, "wait_for_members", fail)
        value = recover.recover(down.directory())
    assert value["left"] == [
        "the files: input/output error",
        "the files were not reverted",
    ]
    assert (value["verified"], value["server"], down.originals()) == (False, None, [])
    assert recover.recover(down.directory())["left"] == []
    assert down.changes() == []


def test_force_without_an_original(place):
    """Force takes out only what it can replace: the session stays open and says what is missing."""
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    kept_of(place).unlink()
    lose_copies(place)
    upgrade(place)
    value = op(context, "revert", force=True)
    layers = value["files"][-1]
    assert (layers["state"], layers["why"]) == (
        "drift",
        "left as it is, and its kept original is gone",
    )
    assert not value["verified"]
    assert (place.root / LAYERS).read_bytes() == b"UPGRADED = 1\n"


def test_a_swap_that_never_was_and_two_edits(place):
    """A file that somebody wrote before its rename is theirs for good, whatever they do to it."""
    killed_before_the_rename(place)
    (place.root / LAYERS).write_bytes(b"X = 'theirs'\n")
    runtime = place.root / "sglang" / "_sgldbg.py"
    runtime.write_bytes(b"# theirs as well\n")
    drift = f"{runtime}: drift, it was changed after the swap"
    assert place.recover()["left"] == [drift]
    assert not kept_of(place).exists()
    (place.root / LAYERS).unlink()
    assert place.recover()["left"] == [drift]
    assert place.recover(force=True)["left"] == []
    assert not (place.root / LAYERS).exists()
