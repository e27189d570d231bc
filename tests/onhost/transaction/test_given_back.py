"""A server that was given back and ends again while it loads: how it ran is known all the same."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.session import recover
from tests.onhost.transaction.lost import leave_debug_life
from tests.onhost.transaction.place import HOST, NOBODY, SESSION, op, wait_for
from tests.onhost.transaction.test_guard import wait_for_the_guard

# Listens, and needs a file to come up.
LISTENER = """import os, socket, time
os.stat('../needed')
listening = socket.create_server(('127.0.0.1', 0))
time.sleep(86400)"""


@pytest.fixture
def over(place):
    """A session left in its debug life by everybody."""
    leave_debug_life(place)
    place.expire(agent=NOBODY)
    return place


def end_server(place):
    """The server ends for a reason of its own."""
    (pid,) = place.originals()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: place.servers() == [])


def is_as_before(place):
    """Tree, server, and nothing left of the session."""
    names = list(Path(place.state).rglob("server.json"))
    return (place.changes(), place.status(), names, len(place.originals())) == ([], [], [], 1)


def test_who_waits_for_it_ends_the_session(over):
    """With `hold` it is open until `finish`, and nobody else has it meanwhile."""
    context = Context(over.state)
    value = op(context, "recover", session=SESSION, host=HOST, hold=True)
    assert (value["left"], value["verified"]) == ([], True)
    (seen,) = over.status()
    assert (seen["state"], seen["server"], seen["expired"]) == ("reverted", "restored", False)
    assert op(context, "finish") == {"left": []}
    assert is_as_before(over)


def test_one_that_ends_before_that(over):
    """The session stays, and the next revert starts it once more."""
    context = Context(over.state)
    op(context, "recover", session=SESSION, host=HOST, hold=True)
    end_server(over)
    (seen,) = over.status()
    assert (seen["server"], seen["over"]) == ("restored, and gone since", False)
    value = op(context, "recover", session=SESSION, host=HOST, hold=True)
    assert value["server"]["pid"] in over.originals()
    op(context, "finish")
    assert is_as_before(over)


def test_one_that_its_guard_has_started(place, held):
    """A guard does not wait until a server is ready, so it forgets nothing of it."""
    held.kill()
    assert wait_for_the_guard(place)["server"] == "restored"
    end_server(place)
    assert recover.recover(place.directory())["left"] == []
    assert is_as_before(place)


def test_one_that_ends_at_once(place):
    """Where nobody waits for it the host looks until it listens; one that dies is left."""
    needed = place.top / "needed"
    needed.touch()
    argv = (sys.executable, "-c", LISTENER)
    leave_debug_life(place, argv, lambda main: wait_for(lambda: procfs.find_ports(main.pid)))
    place.expire(agent=NOBODY)
    needed.unlink()
    value = recover.recover(place.directory())
    pid = value["server"]["pid"]
    assert value["left"] == [f"the original server: process {pid} has ended again"]
    assert place.servers() == []
    needed.touch()
    value = recover.recover(place.directory())
    assert value["left"] == []
    assert procfs.find_ports(value["server"]["pid"])
    assert is_as_before(place)
