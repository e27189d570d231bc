"""Locks, pointers and members' files that another user wrote: shown at most, never acted upon."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from orchestrator.onhost.agent.files import claim, shared
from orchestrator.onhost.agent.held import lock, untrusted
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import orphan, status
from orchestrator.onhost.agent.session.foreign import show_time
from tests.onhost.transaction.lost import (
    change_lock,
    lock_of,
    lose_patched,
    undo_orphan,
)
from tests.onhost.transaction.place import HOST, apply, op, stage

ANOTHER = 1234
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user")


def dump(place, **changes):
    """The lock's text with other values."""
    return json.dumps({**json.loads(lock_of(place).read_text()), **changes}).encode("ascii")


def make_plan(place, **changes):
    """The lock's plan with other values for its first file."""
    plan = json.loads(lock_of(place).read_text())["plan"]
    plan["files"][0].update(changes)
    return plan


def put(place, data):
    """Other bytes in the lock."""
    lock_of(place).write_bytes(data)


def replace_by(place, make):
    """Something else in the lock's place."""
    lock_of(place).unlink()
    make(lock_of(place))


def make_socket(path):
    """A name that no open(2) takes; bound by a short name, since those are limited."""
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


UNREADABLE = {
    "nothing": lambda p: put(p, b""),
    "no JSON": lambda p: put(p, b"held"),
    "no object": lambda p: put(p, b"[1]"),
    "no text": lambda p: put(p, b"\xff"),
    "deep": lambda p: put(p, b"[" * 200_000 + b"]" * 200_000),
    "long": lambda p: put(p, dump(p)[:-1] + b" " * untrusted.LIMIT_BYTES + b"}"),
    "a pipe": lambda p: replace_by(p, os.mkfifo),
    "a directory": lambda p: replace_by(p, os.mkdir),
    "a link": lambda p: replace_by(p, lambda path: path.symlink_to("elsewhere")),
    "a socket": lambda p: replace_by(p, make_socket),
    "no session": lambda p: put(p, dump(p, session=None)),
    "a path for a name": lambda p: put(p, dump(p, session="../s1")),
    "a time in words": lambda p: put(p, dump(p, since="x")),
    "no year": lambda p: put(p, dump(p, since=1e300)),
    "no number": lambda p: put(p, dump(p, until=float("nan"))),
    "a NUL": lambda p: put(p, dump(p, state_dir="/state\0")),
    "a place from nowhere": lambda p: put(p, dump(p, state_dir="state")),
    "a boot in numbers": lambda p: put(p, dump(p, boot_id=1)),
}
NOT_UNDONE = {
    "a guard of nothing": {"guard": {}},
    "a guard in words": {"guard": {"pid": "1", "start_time": 0}},
    "no plan": {"plan": None},
    "a server of another kind": {"server": "gone"},
    "compiled files in numbers": {"pycs": {"a.py": [1]}},
    "a way up": {
        "pycs": {"a": [{"dir": "/a", "before": None, "files": [{"name": "../b", "inode": 1}]}]}
    },
    "a field too many": {"size": 1, "more": 1},
    "a size in words": {"size": "1"},
    "a mode in words": {"stat": {"mode": "1"}},
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_lock_that_cannot_be_read(place, name):
    """No other install hears of it; who names or wants this one is told that it is locked."""
    lose_patched(place)
    UNREADABLE[name](place)
    assert lock.read(str(lock_of(place))) == {}
    assert status.sessions(place.state) == []
    (seen,) = status.sessions(place.state, [str(place.package_dir)])
    said = [seen[key] for key in ("session", "state", "files", "ends", "why_not", "expired")]
    assert said == ["", "unknown", [], "hand", "what the lock says cannot be read", False]
    context = place.begin(session="s2")
    with pytest.raises(Refusal) as refused:
        stage(place, context, edits={}, runtime=False)
    assert (refused.value.code, refused.value.message) == (
        "locked",
        f"`{place.package_dir}` is locked, but `{lock_of(place)}` cannot be read",
    )
    op(context, "finish")


def test_a_lock_of_which_nothing_is_undone(place):
    """Where one value that a revert acts on is not of its type, none is taken."""
    lose_patched(place)
    before = lock_of(place).read_bytes()
    for changes in NOT_UNDONE.values():
        in_plan = not {"guard", "plan", "server", "pycs"} & set(changes)
        change_lock(place, **({"plan": make_plan(place, **changes)} if in_plan else changes))
        (seen,) = place.status()
        assert (seen["state"], seen["files"], seen["ends"], seen["why_not"]) == (
            "unknown, its directory is lost",
            [],
            "hand",
            "what the lock says of its files cannot be read",
        )
        put(place, before)
    assert undo_orphan(place)["left"] == []
    assert place.changes() == []


def test_what_a_lock_says_is_plain(place):
    """Nothing of a holder acts on the terminal of who asks, or looks like a line of its own."""
    lose_patched(place)
    change_lock(place, holder="ann\x1b[2J\nroot\u202e", state_dir="/no\x1b[2J")
    (seen,) = place.status()
    assert (seen["holder"], seen["lost"]) == (
        "ann?[2J?root?",
        f"/no?[2J/sessions/s1/{HOST}",
    )


@needs_root
def test_the_lock_of_another_user(place):
    """It is not undone, whatever it says; beside a package that was named it is shown."""
    lose_patched(place)
    os.chown(lock_of(place), ANOTHER, ANOTHER)
    patched = place.tree()
    assert place.status() == []
    (seen,) = status.sessions(place.state, [str(place.package_dir)])
    why_not = "the lock is another user's (uid 1234), who alone can undo it"
    shown = [seen[name] for name in ("state", "ends", "user", "why_not", "server", "guard")]
    assert shown == ["patched", "user", "1234", why_not, "untouched", "dead"]
    assert {file["state"] for file in seen["files"]} == {"patched"}
    with pytest.raises(Refusal) as refused:
        op(Context(place.state), "recover", session="s1", host=HOST, lock=seen["lock"])
    assert (refused.value.code, refused.value.message) == (
        "missing",
        f"session `s1` of ann@desk holds `{place.package_dir}` since {show_time(seen['since'])}"
        f" until {show_time(seen['until'])}: {why_not}",
    )
    context = place.begin(session="s2")
    with pytest.raises(Refusal) as refused:
        stage(place, context, edits={}, runtime=False)
    assert refused.value.code == "locked"
    op(context, "finish")
    assert place.tree() == patched


@needs_root
def test_files_that_another_user_names(place):
    """Shown are those beside the lock; nobody has root tell of any other, or read it."""
    lose_patched(place)
    change_lock(place, plan=make_plan(place, path=str(place.top / "victim.py")))
    os.chown(lock_of(place), ANOTHER, ANOTHER)
    (seen,) = status.sessions(place.state, [str(place.package_dir)])
    assert (seen["session"], seen["state"], seen["files"]) == ("s1", "unknown", [])


@needs_root
def test_a_directory_that_another_user_names(place):
    """A journal is carried out: one that somebody else's lock leads to is not even read."""
    apply(place, first := place.begin())
    first.session.close()
    place.expire()
    os.chown(lock_of(place), ANOTHER, ANOTHER)
    patched = place.tree()
    context = place.begin(session="s2")
    with pytest.raises(Refusal) as refused:
        stage(place, context, edits={}, runtime=False)
    assert refused.value.code == "locked"
    op(context, "finish")
    assert place.tree() == patched


def test_pointers_that_another_user_left(place):
    """What leads nowhere, or to too much, hides no session of ours and stops nothing."""
    lose_patched(place)
    ours = str(lock_of(place))
    pointers = {
        "pipe": os.mkfifo,
        "link": lambda path: os.symlink(place.top / "none", path),
        "deep": lambda path: Path(path).write_bytes(b"[" * 60_000),
        "kinds": lambda path: Path(path).write_text('{"locks": [1]}'),
        "many": lambda path: Path(path).write_text(
            json.dumps({"locks": [f"/none/{n}/.sgldbg-lock" for n in range(100)] + [ours]})
        ),
        "shown": lambda path: Path(path).write_text('{"locks": ["/a\\u001b/.sgldbg-lock"]}'),
    }
    for name, make in pointers.items():
        folder = place.top / "tmp" / f"sgldbg-{name}"
        folder.mkdir()
        make(str(folder / "install.json"))
        assert ours not in claim.follow(str(folder))
        assert all(path == untrusted.plain(path) for path in claim.follow(str(folder)))
    assert list(orphan.find_locks([])) == [
        *claim.follow(str(place.top / "tmp" / "sgldbg-many")),
        ours,
    ]
    assert undo_orphan(place)["left"] == []


def test_what_stands_in_the_place_of_a_members_file(place):
    """A pipe, a link or odd values beside a shared install cost a wait, and nothing is followed."""
    context = place.begin()
    stage(place, context)
    victim = place.top / "victim"
    member = place.package_dir / f".sgldbg-member-s1-gpu{os.getpid()}x"
    kinds = {
        "No such device": os.mkfifo,  # since nobody reads from it
        "symbolic links": lambda path: os.symlink(victim, path),
        "": lambda path: path.write_text('{"beat": 1, "limit_s": "x"}'),
        " ": lambda path: path.write_text("[" * 100_000),
    }
    for error, make in kinds.items():
        make(member)
        assert shared._read_member(str(member)) == {"beat": "unreadable", "limit_s": 60.0}
        if error.strip():
            with pytest.raises(OSError, match=error):
                untrusted.open_to_write(str(member), os.O_CREAT)
        member.unlink()
    assert not victim.exists()
    op(context, "revert")
    op(context, "finish")


def test_a_lock_lost_on_the_way(place):
    """Of two that undo one orphan, who comes second finds it ended and makes nothing anew."""
    lose_patched(place)
    (found,) = orphan.find_all()
    assert orphan.recover_orphan(found, place.state)["left"] == []
    before = sorted(Path(place.state).rglob("*"))
    with pytest.raises(Refusal) as refused:
        orphan.recover_orphan(found, place.state)
    told = (refused.value.code, refused.value.message, refused.value.data)
    assert told == ("missing", "the session is not there any more", {"ended": True})
    assert sorted(Path(place.state).rglob("*")) == before
    assert place.changes() == []
