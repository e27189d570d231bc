"""The lease: who holds a session, and how a channel that comes back takes it up again."""

from __future__ import annotations

import os
import signal

import pytest

from orchestrator.onhost.agent import ops_session
from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import begin, guard
from tests.onhost.transaction.place import (
    HOST,
    NOBODY,
    SESSION,
    no_guard,
    op,
    session_of,
    stage,
    wait_for,
)


def attach(place, start=no_guard):
    """A context of a channel that came back."""
    context = Context(place.state)
    context.session = begin.attach(place.state, SESSION, HOST, start)
    return context


def fenced(context, name="swap", **args):
    """The message with which an op is refused as fenced."""
    with pytest.raises(Refusal) as refused:
        op(context, name, **args)
    assert refused.value.code == "fenced"
    return refused.value.message


def test_a_channel_that_comes_back(place, held):
    """It ends the agent before it and goes on where that one was, to a clean end."""
    context = attach(place, guard.start)
    assert held.wait(30) == -signal.SIGKILL
    assert session_of(context).epoch == 2
    assert len(place.guards()) == 1
    op(context, "renew", lease_s=60.0)
    assert op(context, "stop-server", which="debug", timeout_s=5, port=None)["left"] == []
    assert op(context, "revert")["verified"]
    assert op(context, "restore-server")["differences"] == []
    op(context, "finish")
    assert place.changes() == []
    assert place.servers() == place.originals() != []


def test_a_stopped_agent_is_ended_by_attach(place, held):
    """One under SIGSTOP would keep its locks: it is killed, not asked."""
    held.send_signal(signal.SIGSTOP)
    context = attach(place, guard.start)
    assert held.wait(30) == -signal.SIGKILL
    op(context, "renew", lease_s=60.0)
    assert op(context, "revert")["verified"]
    op(context, "stop-server", which="debug", timeout_s=5, port=None)
    op(context, "finish")


def test_the_one_before_is_fenced(place):
    """After an attach the old epoch can do nothing any more."""
    old = place.begin()
    stage(place, old)
    new = attach(place)
    message = fenced(old)
    assert message == f"the session was taken over by another controller (process {os.getpid()})"
    assert fenced(old, "renew", lease_s=60.0) == message
    assert fenced(old, "revert") == message
    op(new, "swap")
    op(new, "revert")
    op(new, "finish")
    assert fenced(old, "revert") == "the session's lease is gone"
    assert place.changes() == []


def test_a_lease_that_ran_out_is_over(place):
    """Neither a renewal nor an attach brings it back, only a revert ends it."""
    context = place.begin()
    stage(place, context)
    place.expire()
    assert fenced(context) == "the lease ran out"
    assert fenced(context, "renew", lease_s=60.0) == "the lease ran out"
    with pytest.raises(Refusal) as refused:
        attach(place)
    assert (refused.value.code, refused.value.message) == ("fenced", "the lease ran out")
    assert place.recover()["verified"]


def test_a_host_that_was_restarted(place):
    """The boot id ends every lease of before, whatever its clock says."""
    context = place.begin()
    place.expire(deadline_s=lease.now_s() + 1e6, boot_id="before")
    assert fenced(context) == "the host was restarted since the session began"


def test_a_killed_guard_is_replaced(place):
    """The channel that comes back starts a guard where there is none any more."""
    context = place.begin(with_guard=True)
    (watching,) = place.guards()
    assert op(context, "renew", lease_s=60.0)["guard"] == "alive"
    os.kill(watching, signal.SIGKILL)
    # A process that is ending has no command line any more, and is not dead yet.
    wait_for(lambda: op(context, "renew", lease_s=60.0)["guard"] == "dead")
    assert place.status()[0]["guard"] == "dead"
    context = attach(place, guard.start)
    (another,) = place.guards()
    assert another != watching
    assert place.status()[0]["guard"] == "alive"
    op(context, "finish")
    assert place.guards() == []


def test_the_end_of_the_channel(place):
    """It leaves the grace, unless that is longer than what was left, or the lease is detached."""
    context = place.begin()
    renewed = op(context, "renew", lease_s=60.0)
    assert renewed["deadline_s"] - renewed["now_s"] == pytest.approx(60.0, abs=1.0)
    context.on_eof()
    held = lease.read(place.directory())
    assert held.deadline_s - lease.now_s() == pytest.approx(5.0, abs=1.0)
    op(context, "renew", lease_s=2.0)
    context.on_eof()
    assert lease.read(place.directory()).deadline_s - lease.now_s() < 2.0
    op(context, "detach", lease_s=3600.0)
    context.on_eof()
    held = lease.read(place.directory())
    assert held.deadline_s - lease.now_s() == pytest.approx(3600.0, abs=5.0)
    back = attach(place)
    assert lease.read(place.directory()).deadline_s - lease.now_s() > 3590.0
    back.on_eof()
    assert lease.read(place.directory()).deadline_s - lease.now_s() > 3590.0


def test_end_of_the_channel_without_a_session(place):
    """An agent that holds nothing leaves nothing."""
    Context(place.state).on_eof()
    assert place.status() == []


def test_a_lease_file_that_is_damaged(place):
    """It counts as no lease: its holder is fenced, and the journal alone is enough to revert."""
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    with open(os.path.join(place.directory(), "lease"), "r+b") as file:
        file.write(b"\0" * 64)
    assert fenced(context, "revert") == "the session's lease is gone"
    assert place.status()[0]["expired"]
    context.session.close()
    assert place.recover()["left"] == []
    assert place.changes() == []


def test_ops_without_a_session(place):
    """An agent that holds no session refuses all that changes something."""
    context = Context(place.state)
    for name in sorted(set(ops_session.OPS) - {"begin", "attach", "recover"}):
        assert fenced(context, name, lease_s=1.0) == "this agent holds no session"


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "a\nb", "-x"])
def test_names_are_plain(place, name):
    """A session's or host's name never leads out of the state directory."""
    for args in ({"session": name, "host": HOST}, {"session": SESSION, "host": name}):
        with pytest.raises(Refusal) as refused:
            op(Context(place.state), "attach", **args)
        assert refused.value.message == f"`{name}` cannot be the name of a session or host"
        assert refused.value.code == "bad-name"


def test_nobody_is_not_alive():
    """A process number of another start time is another process."""
    assert not lease.is_alive(NOBODY)
    assert not lease.is_alive(lease.Process(os.getpid(), 1))
    assert lease.is_alive(lease.me())
