"""What `status` says of a session's server: what runs, and not what was last written of it."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import serving
from tests.onhost.transaction.place import DEBUG, apply, op, session_of, stage, wait_for

GONE = "debug life, and gone since"
STOP = {"which": "original", "timeout_s": 5, "port": None}


def server_of(place):
    """What `status` says of it."""
    (session,) = place.status()
    return session["server"]


def test_a_debug_life_that_has_ended(place):
    """As with its container: nobody wrote that down; it is not kept as a whole one either."""
    apply(place, context := place.begin())
    debug = session_of(context).facts.debug
    assert server_of(place) == "debug life"
    lease.end(lease.Process(debug["pid"], debug["start_time"]))
    assert server_of(place) == GONE
    with pytest.raises(Refusal) as refused:
        op(context, "keep")
    assert refused.value.message == f"only a whole debug life can be kept: its server is `{GONE}`"
    op(context, "revert")
    op(context, "finish")
    assert place.changes() == []


@pytest.mark.parametrize("has_title", [False, True])
def test_a_worker_that_outlives_its_main_process(place, has_title):
    """It is known by its environment, or where a title stands there by its process session."""
    worker = "env -i sleep 86392 &" if has_title else "sleep 86392 &"
    script = ("sh", "-c", f"{worker} echo $! >worker; exec sleep 86392")
    stage(place, context := place.begin())
    op(context, "swap")
    cwd = str(place.top)
    op(context, "describe-server", pid=None, argv=list(DEBUG), env=place.environ(), cwd=cwd)
    op(context, "start-server", argv=list(script), env_set={}, env_unset=[], cwd=cwd)
    pid = int(wait_for(lambda: (place.top / "worker").exists() and _read(place.top / "worker")))
    debug = session_of(context).facts.debug
    wait_for(lambda: b"86392" in _read(f"/proc/{pid}/cmdline"))
    lease.end(lease.Process(debug["pid"], debug["start_time"]))
    assert server_of(place) == "debug life"
    lease.end(lease.find_process(pid))
    assert server_of(place) == GONE
    op(context, "revert")
    op(context, "finish")


def test_an_end_that_was_only_begun(place):
    """Announced, the original runs on; it is stopped only once it does not run."""
    main = place.start_server()
    stage(place, context := place.begin())
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    assert server_of(place) == "untouched"
    op(context, "stop-server", announce=True, **STOP)
    assert server_of(place) == "stopping"
    op(context, "stop-server", **STOP)
    assert server_of(place) == "stopped"
    op(context, "revert")
    op(context, "restore-server")
    assert server_of(place) == "restored"
    (back,) = place.originals()
    os.kill(back, signal.SIGKILL)
    wait_for(lambda: server_of(place) == "restored, and gone since")
    op(context, "finish")


def test_no_process_outlives_its_host(place):
    """After a restart another process may have the number and the time of one before."""
    apply(place, context := place.begin())
    facts, mark = session_of(context).facts, session_of(context).mark
    assert serving.read_server(facts, mark) == "debug life"
    begun, facts.begun = facts.begun, dict(facts.begun, boot_id="another")
    assert serving.read_server(facts, mark) == GONE
    facts.begun = begun
    with subprocess.Popen(["sleep", "86391"]) as other:
        facts.debug = facts.started = None
        facts.server = {"main": lease.find_process(other.pid).as_json()}
        facts.stopping = {}
        assert serving.read_server(facts, mark) == "stopping"
        facts.begun = dict(begun, boot_id="another")
        assert serving.read_server(facts, mark) == "stopped"
        other.kill()


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
