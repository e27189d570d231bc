"""A state directory that goes away under a session: undone from memory, or from the lock."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
from pathlib import Path

import pytest

from orchestrator.onhost.agent import __main__ as by_hand
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import recover, status
from tests.onhost.transaction.lost import (
    change_lock,
    leave_debug_life,
    lock_of,
    lose_all,
    lose_patched,
    undo_orphan,
)
from tests.onhost.transaction.place import DEBUG, HOST, op, stage, wait_for
from tests.onhost.tree import differences, snapshot

LAYERS = "sglang/srt/layers.py"


def lose_journal(place):
    """A journal that was emptied, as by a disk that was full when somebody saved it."""
    Path(place.directory(), "journal.jsonl").write_bytes(b"")


def lose_lease(place):
    """The lease and the server's description, and nothing else."""
    for name in ("lease", "server.json"):
        os.unlink(os.path.join(place.directory(), name))


@pytest.mark.parametrize("lose", [lose_all, lose_journal, lose_lease])
def test_the_guard_undoes_it_from_memory(place, held, lose):
    """Files and server come back though nobody can renew any more, and the report is found."""
    lose(place)
    wait_for(lambda: not place.guards())
    assert place.changes() == []
    assert place.servers() == place.originals() != []
    (session,) = place.status()
    assert (session["state"], session["server"]) == ("reverted by guard", "restored")
    what = "lease" if lose is lose_lease else "directory"
    assert session["report"] == [
        f"the session's {what} was lost: 3 of 3 files put back, all verified",
        f"the original server runs as process {place.originals()[0]} (no differences)",
    ]
    wait_for(lambda: held.poll() is not None)
    assert recover.recover(place.directory())["left"] == []
    assert place.status() == []
    assert os.listdir(place.top / "tmp") == []


def test_the_guard_finds_another_place(place, held):
    """Where the directory cannot even be made again, everything comes back all the same."""
    lose_all(place)
    Path(place.state).write_text("no directory any more")
    wait_for(lambda: not place.guards())
    assert place.changes() == []
    assert place.servers() == place.originals() != []
    assert os.listdir(place.top / "tmp") == [f"sgldbg-s1-{HOST}"]


def test_a_description_outlives_the_journal(place):
    """What the journal has lost of a server, its own file and the lock still know."""
    leave_debug_life(place)
    os.unlink(os.path.join(place.directory(), "lease"))
    journal = Path(place.directory(), "journal.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    described = next(n for n, line in enumerate(lines) if b'"describe"' in line)
    journal.write_bytes(b"".join(lines[:described]))
    value = recover.recover(place.directory())
    assert (value["left"], value["server"]["differences"]) == ([], [])
    assert place.changes() == []
    assert place.servers() == place.originals() == [value["server"]["pid"]]
    assert place.status() == []


def test_a_lost_description_is_never_taken_for_a_server_that_is_back(place):
    """Who ends such a session is told that the server stays down, and so is everybody after."""
    leave_debug_life(place)
    for name in ("lease", "server.json"):
        os.unlink(os.path.join(place.directory(), name))
    value = recover.recover(place.directory())
    assert (value["left"], value["server"], value["lost"]) == ([], None, [])
    assert place.changes() == []
    assert place.servers() == []
    ended = Path(place.state, "ended", "s1", HOST, "journal.jsonl").read_text()
    assert "how its server ran is not known any more, so it was not started" in ended


def test_an_orphan_is_named(lost):
    """The lock says whose it is, where, what differs, and where the originals are kept."""
    (seen,) = lost.status()
    told = {k: seen[k] for k in ("session", "host", "root", "holder", "state", "expired", "guard")}
    assert told == {
        "session": "s1",
        "host": HOST,
        "root": str(lost.root),
        "holder": "ann@desk",
        "state": "patched, its directory is lost",
        "expired": True,
        "guard": "dead",
    }
    assert (seen["server"], seen["lost"]) == ("unknown", lost.directory())
    srt = lost.package_dir / "srt"
    assert seen["files"] == [
        {"path": str(lost.package_dir / "_sgldbg.py"), "state": "patched", "kept": None},
        {
            "path": str(srt / "models/llama.py"),
            "state": "patched",
            "kept": str(srt / "models/.llama.py.sgldbg-orig"),
        },
        {
            "path": str(srt / "layers.py"),
            "state": "patched",
            "kept": str(srt / ".layers.py.sgldbg-orig"),
        },
    ]


@pytest.mark.parametrize("pointer", [True, False])
def test_an_orphan_is_undone_from_its_lock(lost, pointer):
    """Every file as it was, the debug life ended; the server, which nobody knows, is named."""
    if not pointer:  # as after a restart that empties /tmp: then somebody has to say where
        shutil.rmtree(lost.top / "tmp" / f"sgldbg-s1-{HOST}")
        assert lost.status() == []
    (seen,) = status.sessions(lost.state, [str(lost.package_dir)])
    mine = {"session": seen["session"], "host": seen["host"], "lock": seen["lock"]}
    value = op(Context(lost.state), "recover", **mine)
    assert (value["left"], value["verified"], value["server"]) == ([], True, None)
    assert value["report"] == [
        f"its directory was lost: undone from `{lock_of(lost)}`",
        "how its server ran was lost with it, so it was not started",
    ]
    assert list(DEBUG) in value["lost"]
    assert lost.changes() == []
    assert lost.servers() == []
    assert lost.status() == []
    assert os.listdir(lost.top / "tmp") == []


def test_an_orphan_that_somebody_changed(lost):
    """Drift stays drift; the session has a directory again, and ends by force.

    Of the server every try and every look says the same: no more is known of it the second time.
    """
    (lost.root / LAYERS).write_bytes(b"# mine\n")
    value = undo_orphan(lost)
    path = str(lost.root / LAYERS)
    assert value["left"] == [f"{path}: drift, it was changed after the swap"]
    (seen,) = lost.status()
    assert (seen["state"], "lock" in seen) == ("drift", False)
    assert (seen["server"], seen["ran"]) == ("unknown", True)
    assert lost.servers() == []
    again = undo_orphan(lost, force=True)
    assert (again["left"], again["verified"], again["server"]) == ([], True, None)
    assert (again["lost"], again["report"]) == (value["lost"], value["report"])
    assert list(DEBUG) in again["lost"]
    assert lost.changes() == []
    assert list(Path(lost.state, "ended").rglob("lives.json")) == []


def test_the_next_session_ends_an_orphan(lost):
    """Who stages on the install finds the lock and undoes it first."""
    context = lost.begin(session="s2")
    args, raw = lost.stage_args()
    for item in args["files"]:  # what a plan saw before the patch
        item["before_sha256"] = lost.before.get(f"site/{item['file']}", {}).get("sha256")
    value = op(context, "stage", raw, **args)
    (ended,) = value["recovered"]
    assert (ended["session"], ended["left"], ended["verified"]) == ("s1", [], True)
    assert op(context, "revert")["verified"]
    op(context, "finish")
    assert lost.changes() == []


def test_an_orphan_by_hand(lost, capsys):
    """The agent alone, told where the install is, names it and undoes it; 7 as long as no server
    runs again.
    """
    shutil.rmtree(lost.top / "tmp" / f"sgldbg-s1-{HOST}")
    package = str(lost.package_dir)
    assert by_hand.main(["status"]) == 0
    capsys.readouterr()
    assert by_hand.main(["status", package]) == by_hand.NOT_RESTORED
    said = capsys.readouterr().out.splitlines()
    srt = lost.package_dir / "srt"
    assert said[0] == f"s1 on {HOST}: patched, its directory is lost"
    assert said[1].startswith("  held by ann@desk since ")
    assert said[2:] == [
        f"  known from `{lock_of(lost)}`, `{lost.directory()}` is gone",
        "  the lease is over, the guard is dead",
        f"  {package}/_sgldbg.py: patched",
        f"  {srt}/models/llama.py: patched",
        f"    its original is `{srt}/models/.llama.py.sgldbg-orig`",
        f"  {srt}/layers.py: patched",
        f"    its original is `{srt}/.layers.py.sgldbg-orig`",
        "  server: unknown",
    ]
    assert by_hand.main(["revert", "--all", package]) == by_hand.NOT_RESTORED
    assert capsys.readouterr().out.splitlines() == [
        f"s1 on {HOST}: {package}/_sgldbg.py: removed",
        f"s1 on {HOST}: {srt}/models/llama.py: reverted",
        f"s1 on {HOST}: {srt}/layers.py: reverted",
        f"s1 on {HOST}: its directory was lost: undone from `{lock_of(lost)}`",
        f"s1 on {HOST}: how its server ran was lost with it, so it was not started",
        f"s1 on {HOST}: reverted and verified",
    ]
    assert lost.changes() == []
    assert by_hand.main(["revert", "--all", package]) == 0


@pytest.mark.parametrize(
    ("changes", "why_not"),
    [
        ({"machine": "another"}, None),
        (
            {"processes": "pid:[1]"},
            ("there", "its processes are not seen from here, as those of a container are not"),
        ),
        (
            {"state_dir": "/" + "x" * 300},
            ("hand", f"its directory `/{'x' * 300}/sessions/s1/{HOST}` cannot be looked at"),
        ),
    ],
    ids=["another machine", "a container", "no place to look at"],
)
def test_what_is_not_ours_to_judge(lost, changes, why_not):
    """A lock of another machine, of a container, or whose directory cannot be looked for.

    Beside a package that is named it is told all the same, and who ends it.
    """
    change_lock(lost, **changes)
    assert lost.status() == []
    (seen,) = status.sessions(lost.state, [str(lost.package_dir)])
    assert {file["state"] for file in seen["files"]} == {"patched"}
    if why_not is not None:
        assert (seen["ends"], seen["why_not"]) == why_not
        mine = {"session": seen["session"], "host": seen["host"], "lock": seen["lock"]}
        with pytest.raises(Refusal) as refused:
            op(Context(lost.state), "recover", **mine)
        assert refused.value.code == "missing"
        assert refused.value.message.endswith(f": {why_not[1]}")
    assert lock_of(lost).exists()


def test_a_lock_that_names_files_elsewhere(lost):
    """Who can write beside the lock gains nothing: no file is touched but those beside it."""
    plan = json.loads(lock_of(lost).read_text())["plan"]
    plan["files"][1]["path"] = str(lost.top / "victim.py")
    change_lock(lost, plan=plan)
    (seen,) = lost.status()
    assert (seen["state"], seen["files"]) == ("unknown, its directory is lost", [])
    said = (seen["ends"], seen["why_not"], seen["report"])
    assert said == ("hand", "what the lock says of its files cannot be read", [])
    mine = {"session": seen["session"], "host": seen["host"], "lock": seen["lock"]}
    with pytest.raises(Refusal) as refused:
        op(Context(lost.state), "recover", **mine)
    assert (refused.value.code, refused.value.message) == (
        "missing",
        f"session `s1` holds `{lost.package_dir}`, but its directory `{lost.directory()}` is gone:"
        " what the lock says of its files cannot be read",
    )
    assert lock_of(lost).exists()


def test_another_session_has_the_install_by_now(place):
    """An old session whose lock was taken away by hand touches nothing of the one after it."""
    first = place.begin()
    stage(place, first)
    op(first, "swap")
    first.session.close()
    for path in [*place.root.rglob(".*.sgldbg-orig")]:  # as the guide says
        path.rename(path.with_name(path.name[1 : -len(".sgldbg-orig")]))
    (place.package_dir / "_sgldbg.py").unlink()
    lock_of(place).unlink()
    second = place.begin(session="s2")
    stage(place, second)
    value = place.recover()
    held = f"`{place.package_dir}` is held by another session by now (`s2` of ann@desk)"
    assert value["left"] == [
        f"staged files: {held}",
        f"the files: {held}",
        "the files were not reverted",
    ]
    op(second, "swap")
    assert op(second, "revert")["verified"]
    op(second, "finish")
    assert place.recover()["left"] == []
    assert place.changes() == []


def test_an_orphan_in_a_tree_of_links(place):
    """A strict editable install has a lock on both sides; files and links are as before."""
    tree = place.top / "links"
    for path in place.package_dir.rglob("*.py"):
        link = tree / path.relative_to(place.root)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    links = snapshot(tree)
    args, raw = place.stage_args(runtime=False)
    context = place.begin()
    op(context, "stage", raw, **{**args, "root": str(tree)})
    op(context, "swap")
    context.session.close()
    lose_all(place)
    value = undo_orphan(place)
    assert (value["left"], value["verified"]) == ([], True)
    assert place.changes() == []
    assert differences(links, snapshot(tree)) == []


def test_an_orphan_with_a_cache_elsewhere(place):
    """Compiled files below PYTHONPYCACHEPREFIX come back as well."""
    cached = place.top / "prefix" / str(place.package_dir)[1:] / "srt" / "layers.cpython-311.pyc"
    cached.parent.mkdir(parents=True)
    py_compile.compile(str(place.root / LAYERS), cfile=str(cached), doraise=True)
    before = snapshot(place.top / "prefix")
    args, raw = place.stage_args()
    context = place.begin()
    op(context, "stage", raw, **{**args, "pycache_prefix": str(place.top / "prefix")})
    op(context, "swap")
    context.session.close()
    assert not cached.exists()
    lose_all(place)
    assert undo_orphan(place)["left"] == []
    assert differences(before, snapshot(place.top / "prefix")) == []
    assert place.changes() == []


def test_the_lock_says_what_became_of_the_server(place):
    """Untouched, about to be stopped, or not running before: a revert has to know which."""

    def server():
        return json.loads(lock_of(place).read_text())["server"]

    main = place.start_server()
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    assert server() == "untouched"
    op(context, "stop-server", which="original", timeout_s=5, port=None, announce=True)
    assert server() == "stopped"
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    assert server() == "stopped"
    op(context, "revert")
    op(context, "restore-server")
    op(context, "finish")
    context = place.begin(session="s2")
    stage(place, context)
    op(context, "describe-server", pid=None, argv=["sleep", "1"], env={}, cwd=None)
    op(context, "start-server", argv=list(DEBUG), env_set={"MARK": str(place.top)}, env_unset=[])
    assert server() == "absent"
    context.session.close()
    lose_all(place)
    (seen,) = place.status()
    assert (seen["server"], seen["ran"]) == ("unknown", False)
    value = op(Context(place.state), "recover", session="s2", host=HOST, lock=seen["lock"])
    assert (value["left"], "lost" in value) == ([], False)
    assert place.changes() == []


def test_an_orphan_whose_server_was_left_alone(place):
    """Where only files were touched, nothing else is missing: it ends as any other session."""
    lose_patched(place)
    (seen,) = place.status()
    assert seen["server"] == "untouched"
    value = undo_orphan(place)
    assert (value["left"], "lost" in value) == ([], False)
    assert value["report"] == [f"its directory was lost: undone from `{lock_of(place)}`"]
    assert place.changes() == []
