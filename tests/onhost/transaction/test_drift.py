"""What somebody else changed in between is never overwritten, and both versions are named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import guard, recover
from tests.onhost.transaction.lost import leave_debug_life, lose_copies
from tests.onhost.transaction.place import EDITED, HOST, op, stage, wait_for

LAYERS = "sglang/srt/layers.py"
LLAMA = "sglang/srt/models/llama.py"


@pytest.fixture
def swapped(place):
    """A context whose session has swapped its files."""
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    return context


def replace(path, data):
    """Write as editors and package managers do: a new file, renamed over the old one."""
    draft = path.with_name("draft")
    draft.write_bytes(data)
    draft.rename(path)


def test_a_new_version_of_a_file(place, swapped):
    """The other files are reverted, this one and its original stay; `force` ends it."""
    target = place.root / LAYERS
    replace(target, b"X = 'upgraded'\n")
    value = op(swapped, "revert")
    assert not value["verified"]
    runtime, llama, layers = value["files"]
    assert (runtime["state"], llama["state"]) == ("removed", "reverted")
    kept = target.with_name(".layers.py.sgldbg-orig")
    assert layers["state"] == "drift"
    assert layers["kept"] == [str(kept)]
    assert layers["why"] == "it was changed after the swap"
    assert target.read_bytes() == b"X = 'upgraded'\n"
    assert kept.read_bytes() == b"X = 'original'\n"
    with pytest.raises(Refusal) as refused:
        op(swapped, "finish")
    assert (refused.value.code, refused.value.data) == ("not-reverted", {"left": [str(kept)]})
    assert place.status()[0]["state"] == "drift"
    value = op(swapped, "revert", force=True)
    assert value["verified"]
    (saved,) = value["files"][2]["kept"]
    op(swapped, "finish")
    assert place.changes() == []
    with open(saved, "rb") as file:
        assert file.read() == b"X = 'upgraded'\n"


def test_drift_in_recovery(place, swapped):
    """A guard or a later contact leaves it alone as well, and says so; a second one by force."""
    replace(place.root / LAYERS, b"X = 'upgraded'\n")
    swapped.session.close()
    value = place.recover()
    path = str(place.root / LAYERS)
    assert value["left"] == [f"{path}: drift, it was changed after the swap"]
    kept = path.replace("layers", ".layers") + ".sgldbg-orig"
    assert place.status()[0]["files"][2] == {"path": path, "state": "drift", "kept": kept}
    assert recover.recover(place.directory(), force=True)["left"] == []
    assert place.changes() == []


IMPORTS = "from sglang import _sgldbg\nX = 'mine'\n"


def imported(place):
    """What the edited module says to whoever imports it."""
    program = "from sglang.srt import layers; print(layers.X)"
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, cwd=place.root, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def test_the_runtime_stays_for_an_edit_that_imports_it(place):
    """The original server starts and can import what somebody made of a patched file; what is
    left does nothing, is named, and goes with that file.
    """
    main = place.start_server()
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    op(context, "probe-table", table={"session": "s1"})
    layers = place.root / LAYERS
    layers.write_text(IMPORTS)
    context.session.close()
    value = place.recover()
    runtime = place.package_dir / "_sgldbg.py"
    assert value["left"] == [
        f"{runtime}: drift, `{layers}` still imports it; it does nothing, and goes with that file",
        f"{layers}: drift, it was changed after the swap",
    ]
    assert value["server"]["pid"] in place.originals()
    assert imported(place) == "mine\n"
    assert not (place.top / f"tmp/sgldbg-s1-{HOST}/table.json").exists()
    assert recover.recover(place.directory(), force=True)["left"] == []
    assert not [change for change in place.changes() if "__pycache__" not in change]
    assert imported(place) == "original\n"


def test_the_runtime_stays_for_a_file_that_cannot_be_put_back(place):
    """A file that is still patched is never left without what it imports."""
    context = place.begin()
    stage(place, context, edits={LAYERS: IMPORTS.encode()})
    op(context, "swap")
    layers = place.root / LAYERS
    layers.with_name(".layers.py.sgldbg-orig").unlink()
    lose_copies(place)
    runtime, edited = op(context, "revert")["files"]
    assert (runtime["state"], edited["state"]) == ("failed", "failed")
    assert runtime["why"] == (
        f"`{layers}` still imports it; it does nothing, and goes with that file"
    )
    assert imported(place) == "mine\n"


def test_a_file_that_was_removed(place, swapped):
    """A removal is a change too."""
    (place.root / LAYERS).unlink()
    layers = op(swapped, "revert")["files"][2]
    assert (layers["state"], layers["why"]) == ("drift", "it was removed after the swap")
    assert op(swapped, "revert", force=True)["verified"]
    op(swapped, "finish")
    assert place.changes() == []


def make_folder(path):
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "x.py").write_bytes(b"# mine\n")


def read_folder(path):
    return (path / "inner" / "x.py").read_bytes()


def make_link(path):
    path.symlink_to("other.py")


def make_pipe(path):
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "read", "content"),
    [
        (make_folder, read_folder, b"# mine\n"),
        (make_link, os.readlink, "other.py"),
        (make_pipe, lambda path: path.is_fifo(), True),
    ],
)
@pytest.mark.parametrize("name", [LAYERS, "sglang/_sgldbg.py"])
def test_something_that_is_no_file(place, swapped, name, make, read, content):
    """A directory, a link or a pipe in the place of a file: left alone, by force moved and kept."""
    path = place.root / name
    path.unlink()
    make(path)
    report = next(f for f in op(swapped, "revert")["files"] if f["file"] == name)
    assert (report["state"], report["why"]) == (
        "drift",
        "something that is no plain file stands there",
    )
    assert read(path) == content
    value = op(swapped, "revert", force=True)
    assert value["verified"], value
    report = next(f for f in value["files"] if f["file"] == name)
    (kept,) = report["kept"]
    assert read(type(path)(kept)) == content
    op(swapped, "finish")
    assert place.changes() == []


def test_an_edit_of_the_created_file(place, swapped):
    """Even a file that we created is not removed once it holds somebody else's bytes."""
    path = place.package_dir / "_sgldbg.py"
    path.write_bytes(b"# mine now\n")
    (runtime, *_) = op(swapped, "revert")["files"]
    assert (runtime["state"], runtime["why"]) == ("drift", "it was changed after the swap")
    assert path.read_bytes() == b"# mine now\n"


def test_somebody_put_the_original_back(place, swapped):
    """Bytes that are the original's again need nothing but cleaning up."""
    replace(place.root / LAYERS, b"X = 'original'\n")
    layers = op(swapped, "revert")["files"][2]
    assert (layers["state"], layers["why"]) == (
        "reverted",
        "other than before: mode, mtime_ns, inode",
    )
    op(swapped, "finish")


def test_the_kept_original_is_gone(place, swapped):
    """Planned bytes whose original is nowhere any more stay, named; nothing can be made up."""
    kept = (place.root / LAYERS).with_name(".layers.py.sgldbg-orig")
    kept.unlink()
    lose_copies(place)
    layers = op(swapped, "revert", force=True)["files"][2]
    assert (layers["state"], layers["why"]) == (
        "failed",
        "still patched, the kept original is gone",
    )
    assert (place.root / LAYERS).read_bytes() == EDITED[LAYERS]


def test_an_edit_through_another_link(place, swapped):
    """The inode that belongs there goes back there, and its change is reported."""
    (place.top / "cache" / "llama.py").write_bytes(b"WIDTH = 65\n")
    llama = op(swapped, "revert")["files"][1]
    assert llama["state"] == "drift"
    assert llama["why"] == "the original itself was changed through another link"
    assert (place.root / LLAMA).read_bytes() == b"WIDTH = 65\n"
    assert os.stat(place.root / LLAMA).st_nlink == 2


def test_force_ends_an_edit_through_another_link(place, swapped):
    """There is nothing to put back and nobody's version to keep: one contact is enough."""
    (place.top / "cache" / "llama.py").write_bytes(b"WIDTH = 65\n")
    os.unlink(os.path.join(place.directory(), "lease"))
    swapped.session.close()
    value = recover.recover(place.directory(), force=True)
    llama = value["files"][1]
    assert (llama["state"], llama["let_go"], llama["why"]) == (
        "reverted",
        True,
        "the original itself was changed through another link",
    )
    assert [file["let_go"] for file in value["files"]] == [False, True, False]
    assert (value["left"], place.status()) == ([], [])
    assert (place.root / LLAMA).read_bytes() == b"WIDTH = 65\n"
    assert list(place.root.rglob(".sgldbg*")) == []


def test_a_change_before_the_swap(place):
    """A file that changed after it was staged refuses the whole swap and is left alone."""
    context = place.begin()
    stage(place, context)
    replace(place.root / LAYERS, b"X = 'upgraded'\n")
    with pytest.raises(Refusal) as refused:
        op(context, "swap")
    assert (refused.value.code, refused.value.data["file"]) == ("changed", LAYERS)
    assert (place.root / LLAMA).read_bytes() == b"WIDTH = 64\n"
    value = op(context, "revert")
    assert value["verified"]
    assert value["files"][2]["state"] == "untouched"
    assert value["files"][2]["why"] == "somebody else changed it before the swap"
    assert [file["let_go"] for file in value["files"]] == [False, False, True]
    op(context, "finish")
    assert place.changes() != []
    assert (place.root / LAYERS).read_bytes() == b"X = 'upgraded'\n"


def test_one_revert_at_a_time(place, swapped):
    """A revert that is at work is not disturbed by another one, nor by the guard."""
    with subprocess.Popen(["sleep", "86391"]) as other:
        place.expire(by=lease.RECOVER, agent=lease.find_process(other.pid))
        for by in (lease.RECOVER, lease.GUARD):
            with pytest.raises(Refusal) as refused:
                recover.take_over(place.directory(), by, 1.0)
            assert (refused.value.code, refused.value.message) == (
                "busy",
                f"a revert is at work on this session (process {other.pid})",
            )
        other.kill()
    swapped.session.close()
    assert recover.recover(place.directory())["verified"]
    assert place.changes() == []


def test_recover_is_refused_while_the_lease_is_live(place, swapped):
    """Nobody undoes a session under its holder."""
    held = lease.read(place.directory())
    with pytest.raises(Refusal) as refused:
        recover.recover(place.directory())
    assert refused.value.code == "busy"
    assert refused.value.data["deadline_s"] == held.deadline_s
    op(swapped, "revert")
    op(swapped, "finish")
    with pytest.raises(Refusal) as missing:
        recover.recover(place.directory())
    assert missing.value.code == "missing"


def test_a_change_after_the_revert(place, swapped):
    """A file that was put back is its owner's again: a later change keeps no session open."""
    assert op(swapped, "revert")["verified"]
    replace(place.root / LAYERS, b"X = 'upgraded'\n")
    assert place.status()[0]["state"] == "reverted"
    swapped.session.close()
    value = place.recover()
    assert (value["left"], value["verified"]) == ([], True)
    assert value["files"][2]["why"] == "somebody else changed it after it was put back"
    assert value["files"][2]["let_go"]
    assert (place.root / LAYERS).read_bytes() == b"X = 'upgraded'\n"


def test_a_revert_starts_a_server_that_came_back_and_ended(place):
    """A guard does not judge what ended it, and keeps how it ran for whoever reverts then."""
    leave_debug_life(place)
    os.unlink(os.path.join(place.directory(), "lease"))
    session = recover.take_over(place.directory(), lease.RECOVER, 5.0)
    first = recover.run_tail(session)
    session.close()
    assert first["left"] == []
    os.kill(first["server"]["pid"], signal.SIGKILL)
    wait_for(lambda: place.servers() == [])
    session = recover.take_over(place.directory(), lease.RECOVER, 5.0)
    assert guard._Guard(place.directory())._undo(session, "the lease ran out")
    session.close()
    (left,) = place.status()
    assert (place.servers(), left["server"], left["over"]) == (
        [],
        "restored, and gone since",
        False,
    )
    last = recover.recover(place.directory())
    assert (last["left"], place.changes(), place.status()) == ([], [], [])
    assert place.servers() == place.originals() == [last["server"]["pid"]]
    assert not os.path.exists(os.path.join(place.directory(), "server.json"))


def test_force_starts_a_server_that_ended_for_want_of_a_file(place):
    """The original came back while a file was missing, and died of it: with the file it returns."""
    leave_debug_life(place)
    os.unlink(os.path.join(place.directory(), "lease"))
    (place.root / LAYERS).unlink()
    first = recover.recover(place.directory())
    assert [report["state"] for report in first["files"]] == ["removed", "reverted", "drift"]
    os.kill(first["server"]["pid"], signal.SIGKILL)
    wait_for(lambda: place.servers() == [])
    second = recover.recover(place.directory())
    assert (second["server"], place.servers()) == (None, [])
    last = recover.recover(place.directory(), force=True)
    assert (last["left"], place.changes()) == ([], [])
    assert place.servers() == place.originals() == [last["server"]["pid"]]
