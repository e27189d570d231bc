"""Who drives a session, as `status` tells it, and what `keep` leaves for good."""

from __future__ import annotations

import pytest

from orchestrator.onhost.agent import __main__ as by_hand
from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import begin, guard
from tests.onhost.transaction.place import (
    HOST,
    NOBODY,
    SESSION,
    apply,
    no_guard,
    op,
    stage,
    start_debug,
)


def attach(place, start=no_guard, keep=False):
    """A context of another controller."""
    context = Context(place.state)
    context.session = begin.attach(place.state, SESSION, HOST, start, keep=keep)
    return context


def driver(place):
    """What `status` says of the controller."""
    return place.status()[0]["controller"]


def test_who_drives_it(place):
    """An agent that holds the lease is alive, whatever was left before it, until it lets go."""
    context = place.begin()
    apply(place, context)
    assert driver(place) == "alive"
    op(context, "detach", lease_s=60.0)
    assert driver(place) == "detached"
    later = attach(place)
    assert driver(place) == "alive"
    op(later, "keep")
    assert driver(place) == "kept"
    attach(place, keep=True)
    assert driver(place) == "alive"
    place.expire(deadline_s=None, agent=NOBODY)
    assert driver(place) == "kept"
    place.expire(deadline_s=lease.now_s() + 60.0, detached=True)
    assert driver(place) == "detached"
    place.expire(deadline_s=lease.now_s() + 60.0, detached=False)
    assert driver(place) == "gone"


def refused_keep(context):
    """Why nothing is kept."""
    with pytest.raises(Refusal) as refused:
        op(context, "keep")
    assert refused.value.code == "not-applied"
    return refused.value.message


def test_only_a_whole_debug_life_is_kept(place):
    """What is half in, or on its way back, keeps its lease and its guard; the message says why."""
    say = "only a whole debug life can be kept: "
    context = place.begin()
    message = "its state is `begun`; its server is `untouched`"
    assert refused_keep(context) == say + message
    stage(place, context)
    assert refused_keep(context).startswith(say + "its state is `staged`; ")
    op(context, "swap")
    assert refused_keep(context) == say + "its server is `untouched`"
    start_debug(place, context)
    target = place.root / "sglang/srt/layers.py"
    planned = target.read_bytes()
    target.write_bytes(b"# mine\n")
    assert f"{target}: drift" in refused_keep(context)
    target.write_bytes(planned)
    op(context, "stop-server", which="debug", timeout_s=5, port=None)
    assert refused_keep(context) == say + "its server is `untouched`"
    op(context, "revert")
    assert refused_keep(context).startswith(say + "its state is `reverted`; ")
    assert lease.read(place.directory()).deadline_s is not None
    op(context, "finish")
    assert place.changes() == []


def test_a_revert_ends_the_keep(place):
    """Who takes up a kept session has a lease and a guard again: one that dies leaves no patch."""
    context = place.begin()
    apply(place, context)
    op(context, "detach", lease_s=3600.0)
    op(context, "keep")
    later = attach(place, guard.start)
    assert len(place.guards()) == 1
    held = lease.read(place.directory())
    assert (held.deadline_s is None, held.detached) == (False, False)
    later.on_eof()
    left_s = lease.read(place.directory()).deadline_s - lease.now_s()
    assert left_s == pytest.approx(5.0, abs=1.0)
    op(later, "stop-server", which="debug", timeout_s=5, port=None)
    op(later, "revert")
    op(later, "finish")
    assert place.guards() == []
    assert place.changes() == []


def test_a_question_leaves_it_kept(place):
    """Who only asks a kept server something takes no guard along and leaves no deadline."""
    context = place.begin()
    apply(place, context)
    op(context, "keep")
    asking = attach(place, guard.start, keep=True)
    assert place.guards() == []
    asking.on_eof()
    assert lease.read(place.directory()).is_kept()
    assert op(asking, "keep") is None


def test_by_hand(place, capsys):
    """On the host a kept session is not called one whose time is over."""
    context = place.begin()
    apply(place, context)
    op(context, "keep")
    by_hand.main(["status"])
    assert "  kept until somebody reverts it, no guard watches it\n" in capsys.readouterr().out


def test_a_guard_for_the_one_that_died(place):
    """`guard` starts another, which the journal names; one that lives stays."""
    context = place.begin(with_guard=True)
    (first,) = place.guards()
    assert op(context, "guard")["guard"]["pid"] == first
    lease.end(lease.find_process(first))
    assert op(context, "renew", lease_s=60.0)["guard"] == "dead"
    second = op(context, "guard")["guard"]
    assert place.guards() == [second["pid"]]
    assert op(context, "renew", lease_s=60.0)["guard"] == "alive"
    assert place.journal()[-1]["guard"] == second
    op(context, "finish")
    assert place.guards() == []
