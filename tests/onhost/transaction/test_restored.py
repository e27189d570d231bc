"""What is taken for the original of a session, and what is noted of its debug life."""

from __future__ import annotations

from orchestrator.onhost.agent import ops_host
from orchestrator.onhost.agent.server import shm
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
