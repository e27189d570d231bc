"""What is taken for the original of a session, and what is noted of its debug life."""

from __future__ import annotations

import os

import pytest

from orchestrator.onhost.agent import ops_host
from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.held.facts import Facts
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.server import shm, twin
from tests.onhost.transaction.place import apply, op, stage


def test_one_from_before_is_not_the_restored_one(place):
    """A server that ran beside the original, however alike, does not spare the start of it."""
    other = place.start_server()
    main = place.start_server()
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", **main.as_json())
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    assert place.originals() == [other.pid]
    restored = op(context, "restore-server")
    assert restored["pid"] not in (other.pid, main.pid)
    assert restored["differences"] == []
    assert sorted(place.originals()) == sorted([other.pid, restored["pid"]])
    # Asked again it is the same one.
    assert op(context, "restore-server")["pid"] == restored["pid"]
    assert op(context, "revert")["verified"]
    op(context, "finish")


def test_looking_at_a_debug_life_notes_its_processes(place):
    """Whoever stops it later knows them, though it died in between."""
    context = place.begin()
    apply(place, context)
    session = context.session
    debug = session.facts.debug
    ops_host.OPS["life"](context, {"pid": None}, b"")
    before = shm.read(session)
    assert before is not None
    assert before.pids == frozenset()
    value = ops_host.OPS["life"](context, dict(debug), b"")[0]
    noted = shm.read(session)
    assert noted is not None
    assert noted.pids == {process["pid"] for process in value["processes"]}
    assert debug["pid"] in noted.pids
    op(context, "stop-server", which="debug", timeout_s=5, port=None)
    assert op(context, "revert")["verified"]
    op(context, "finish")


def test_one_that_was_started_on_planned_bytes(place):
    """Somebody was quicker than the revert: that server runs our bytes, and is no original.

    It is named and not ended; once it is gone the original is started.
    """
    main = place.start_server()
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", **main.as_json())
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    early = place.start_server()
    assert op(context, "revert")["verified"]
    with pytest.raises(Refusal) as refused:
        op(context, "restore-server")
    said = (
        f"process {early.pid} runs as it did, but somebody started it while planned bytes were in"
        " place: end it, then revert once more"
    )
    assert (refused.value.code, refused.value.message) == ("runs-planned", said)
    context.session.close()
    assert place.recover()["left"] == [f"the original server: {said}"]
    assert lease.end(early)
    value = place.recover()
    assert (value["left"], place.originals()) == ([], [value["server"]["pid"]])


@pytest.mark.parametrize("who", ["force", "somebody"])
def test_one_that_was_given_back_while_a_file_had_drifted(place, who):
    """It runs that file: once the original is back, by whomever, it is started anew, and only once.

    Until then it is left alone, since the file is somebody else's.
    """
    main = place.start_server()
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", **main.as_json())
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    layers = place.root / "sglang/srt/layers.py"
    layers.rename(place.top / "aside")
    layers.write_bytes(b"X = 'probed'  # edited\n")
    context.session.close()
    value = place.recover()
    assert value["left"] == [f"{layers}: drift, it was changed after the swap"]
    first = value["server"]
    assert place.recover()["server"]["pid"] == first["pid"]
    if who == "somebody":
        layers.unlink()
        os.link(layers.with_name(".layers.py.sgldbg-orig"), layers)
    value = place.recover(force=who == "force")
    assert value["left"] == []
    assert place.originals() == [value["server"]["pid"]] != [first["pid"]]
    assert value["server"]["differences"] == []
    assert not lease.is_alive(lease.Process(first["pid"], first["start_time"]))


@pytest.mark.parametrize(
    ("boots", "known", "start_s", "planned"),
    [
        ("same", True, 15, False),  # before the swap
        ("same", True, 25, True),
        ("same", True, 35, False),  # after the files were back
        ("reboot while patched", True, 5, True),
        ("reboot while patched", True, 35, False),
        ("reboot once they were back", True, 5, False),
        ("same", False, 25, True),  # a full disk took no line of the revert
        ("same", False, 45, False),
    ],
)
def test_which_processes_may_run_planned_bytes(
    tmp_path, monkeypatch, boots, known, start_s, planned
):
    """Those that began after the first swap and before the last file was back.

    When that was the file system says by its own clock, which is nobody else's.
    """
    path = tmp_path / "x.py"
    path.touch()
    modified_ns, mode = tmp_path.stat().st_mtime_ns, tmp_path.stat().st_mode
    boot = "first" if boots == "same" else "second"
    monkeypatch.setattr(lease, "read_boot_id", lambda: boot)
    monkeypatch.setattr(lease, "now_s", lambda: 40.0)  # and changed just now
    monkeypatch.setattr("time.time", lambda: path.stat().st_ctime + 600.0)
    planned_file = {"file": "x.py", "path": str(path), "shown": str(path), "size": 0, "stat": {}}
    shas = {"before_sha256": "b", "after_sha256": "a"}
    plan = {"root": "/", "package": "p", "pycache_prefix": None, "dirs": {}, "locks": []}
    back = {"back_s": 30.0, "boot_id": "first" if "once" in boots else boot} if known else {}
    facts = Facts(
        [
            {"kind": "intent", "step": "begin", "boot_id": "first"},
            {"kind": "intent", "step": "plan", **plan, "files": [{**planned_file, **shas}]},
            {"kind": "intent", "step": "swap:file", "file": "x.py", "now_s": 20.0},
            {"kind": "done", "step": "revert:file", "file": "x.py", "state": "reverted", **back},
        ]
    )
    assert twin.may_run_planned(procfs.to_ticks(start_s), facts) is planned
    assert (tmp_path.stat().st_mtime_ns, tmp_path.stat().st_mode) == (modified_ns, mode)
