"""Sessions that go on in another place than they began in: found and undone from anywhere."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from orchestrator.onhost.agent import __main__ as by_hand
from orchestrator.onhost.agent.held import lease, rebuild
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import guard, moved, orphan, recover, status
from orchestrator.onhost.agent.session.memory import Memory
from tests.onhost.transaction.lost import change_lock, lock_of, lose_all, lose_patched
from tests.onhost.transaction.place import HOST, apply, op, wait_for

LAYERS = "sglang/srt/layers.py"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user")


def undo(state, left, force=False):
    """What `revert --all` asks for a session that `status` told of."""
    mine = {name: left[name] for name in ("session", "host", "lock") if name in left}
    return op(Context(state), "recover", force=force, **mine)


def test_an_orphan_of_another_state_directory(place, tmp_path):
    """Any agent of this user undoes it, and all of them know of what is left of it then."""
    lose_patched(place)
    (place.root / LAYERS).write_bytes(b"# mine\n")
    ours, third = str(tmp_path / "ours"), str(tmp_path / "third")
    (seen,) = status.sessions(ours)
    assert (seen["lock"], seen["lost"]) == (str(lock_of(place)), place.directory())
    drift = f"{place.root / LAYERS}: drift, it was changed after the swap"
    assert undo(ours, seen)["left"] == [drift]
    (here,) = status.sessions(ours)
    (there,) = status.sessions(third)
    assert (here["state"], "lock" in here) == ("drift", False)
    assert {**here, "now_s": 0} == {
        **{name: value for name, value in there.items() if name not in ("lock", "lost")},
        "now_s": 0,
    }
    assert (there["lock"], there["lost"]) == (str(lock_of(place)), place.directory())
    value = undo(third, there, force=True)
    assert (value["left"], value["verified"]) == ([], True)
    assert place.changes() == []
    assert status.sessions(ours) == status.sessions(third) == []
    assert not Path(place.state).exists()


def test_a_moved_one_that_is_lost_again(place, tmp_path):
    """Its lock still says that it is to be looked for."""
    lose_patched(place)
    (place.root / LAYERS).write_bytes(b"# mine\n")
    ours, third = str(tmp_path / "ours"), str(tmp_path / "third")
    undo(ours, status.sessions(ours)[0])
    shutil.rmtree(ours)
    (seen,) = status.sessions(third)
    assert seen["lost"] == os.path.join(ours, "sessions", "s1", HOST)
    undo(ours, seen)  # in the very place that it has by now
    (seen,) = status.sessions(third)
    assert (seen["state"], "lock" in seen) == ("drift", True)
    assert undo(third, seen, force=True)["left"] == []
    assert place.changes() == []


def test_two_agents_with_two_state_directories(place, tmp_path):
    """One of them has the session; the other, which found it before, makes no second one of it."""
    lose_patched(place)
    (place.root / LAYERS).write_bytes(b"# mine\n")
    (found,) = orphan.find_all()
    ours, third = str(tmp_path / "ours"), str(tmp_path / "third")
    assert len(orphan.recover_orphan(found, ours)["left"]) == 1
    with pytest.raises(Refusal) as refused:
        orphan.recover_orphan(found, third)
    assert (refused.value.code, refused.value.data) == ("missing", {"ended": False})
    (seen,) = status.sessions(third)
    assert (seen["state"], undo(third, seen, force=True)["left"]) == ("drift", [])
    assert place.changes() == []


@needs_root
def test_a_place_that_is_another_users(place, tmp_path):
    """The lock is ours, the directory that it names is not: nothing in it is read."""
    lose_patched(place)
    directory = tmp_path / "theirs" / "sessions" / "s1" / HOST
    rebuild.make_dirs(str(directory))
    (directory / "journal.jsonl").write_bytes(b"")
    change_lock(place, state_dir=str(tmp_path / "theirs"), moved=True)
    assert moved.find(str(lock_of(place))) is not None
    os.chown(directory, 1234, 1234)
    assert moved.find(str(lock_of(place))) is None
    assert status.sessions(place.state) == []


def test_a_guard_that_moved_and_met_drift(place, held, capsys):
    """Where it is stands in the lock: the next contact knows of the server that it brought back.

    What is not needed any more for that, the true environment, does not stay in such a place.
    """
    (place.root / LAYERS).write_bytes(b"# mine\n")
    lose_all(place)
    Path(place.state).write_text("no directory any more")
    wait_for(lambda: not place.guards())
    (there,) = (place.top / "tmp").glob("sgldbg-lost-*")
    assert not list(there.rglob("server.json"))
    (seen,) = place.status()
    assert (seen["state"], seen["server"], seen["ran"]) == ("drift", "restored", True)
    assert (seen["lock"], seen["lost"]) == (str(lock_of(place)), place.directory())
    assert place.servers() == place.originals() != []
    assert by_hand.main(["revert", "--all", "--force"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"s1 on {HOST}: reverted and verified"
    # Nothing of ours stays there, but what somebody wrote does.
    (mine,) = [path for path in there.rglob("*") if not path.is_dir()]
    assert mine.read_bytes() == b"# mine\n"
    assert [path.name for path in there.iterdir()] == ["kept"]
    assert place.changes() == []
    assert place.status() == []
    assert place.servers() == place.originals() != []


def test_a_place_of_last_resort_ends_with_its_session(place):
    """Nobody would look there for a journal of something that is over."""
    place.state = rebuild.make_refuge()
    context = place.begin()
    args, raw = place.stage_args()
    op(context, "stage", raw, **args)
    op(context, "swap")
    assert op(context, "revert")["verified"]
    op(context, "finish")
    assert not os.path.exists(place.state)
    assert place.changes() == []


def test_a_guard_that_finds_no_place_at_first(place, monkeypatch):
    """It goes on where its memory says, also after tries of which each failed in another part."""
    apply(place, context := place.begin())
    context.session.close()
    place.expire()
    watching = guard._Guard(place.directory())
    watching._memory.look()
    lose_all(place)
    Path(place.state).write_text("no directory any more")
    real, tries = rebuild.give_back, []

    def fail_twice(directory, contents):
        tries.append(directory)
        if len(tries) == 2:  # the first is the home's own, which fails by itself
            raise OSError("no room there either")
        return real(directory, contents)

    monkeypatch.setattr(rebuild, "give_back", fail_twice)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    watching._undo_patiently("the lease ran out")
    assert place.changes() == []
    assert place.servers() == []
    homes = [directory.startswith(place.state) for directory in tries]
    assert homes == [True, False, False]
    assert place.status() == []


def test_what_a_guard_remembers(place):
    """All that a revert needs comes back, what shared memory there was before included."""
    apply(place, context := place.begin())
    context.session.close()
    Path(place.directory(), "members.json").write_text("since when each was seen")
    names = ("journal.jsonl", "server.json", "shm.json", "members.json")
    before = {name: Path(place.directory(), name).read_bytes() for name in names}
    memory = Memory(place.directory())
    memory.look()
    lose_all(place)
    memory.look()
    assert memory.lost
    memory.give_back()
    assert {name: Path(place.directory(), name).read_bytes() for name in names} == before
    found = lease.read(place.directory())
    assert found is not None
    assert found.deadline_s == 0.0


def test_a_journal_older_than_its_server(place):
    """A journal that lacks the server's lines as well: what the server's own file says serves."""
    main = place.start_server()
    context = place.begin()
    args, raw = place.stage_args()
    op(context, "stage", raw, **args)
    early = Path(place.directory(), "journal.jsonl").read_bytes()
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    context.session.close()
    Path(place.directory(), "journal.jsonl").write_bytes(early)  # an older copy came back
    value = place.recover()
    assert (value["left"], value["verified"], value["server"]["differences"]) == ([], True, [])
    assert place.servers() == place.originals() == [value["server"]["pid"]]
    assert "lost" not in value
    assert place.changes() == []


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_was_kept_is_never_written_over(place, kind):
    """Also where the owner took an earlier one away: a count is no free name."""
    path = place.root / LAYERS
    for number in range(3):
        context = place.begin(session="s2")
        args, raw = place.stage_args(runtime=False)
        op(context, "stage", raw, **args)
        op(context, "swap")
        path.unlink()
        if kind == "file":
            path.write_text(f"# mine {number}\n")
        else:
            path.mkdir()
            (path / "mine").write_text(f"# mine {number}\n")
        value = op(context, "revert", force=True)
        assert value["verified"]
        op(context, "finish")
        shutil.rmtree(Path(place.state, "ended"))
        kept = sorted(Path(place.state, "kept", "s2", HOST).iterdir())
        if number == 1:
            assert [one.name for one in kept] == ["1-layers.py", "2-layers.py"]
            shutil.rmtree(kept[0]) if kind == "directory" else kept[0].unlink()
    texts = {one.name: (one if kind == "file" else one / "mine").read_text() for one in kept}
    assert texts == {"2-layers.py": "# mine 1\n", "3-layers.py": "# mine 2\n"}
    assert place.changes() == []


def test_an_older_lock_that_says_less(place):
    """It still names who holds the install; nothing is undone from it."""
    lose_patched(place)
    words = json.loads(lock_of(place).read_text())
    for name in ("plan", "pycs", "server", "moved", "processes"):
        del words[name]
    lock_of(place).write_text(json.dumps({**words, "boot_id": "another"}))
    (found,) = orphan.find_all()
    assert found.why_not == "what the lock says of its files cannot be read"
    assert recover.was_ended(place.directory()) is False
