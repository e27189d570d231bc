"""The shipped zipapp: agent and guard as they run on a host, under the Pythons that are here."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from orchestrator.agent.ship import open_agent
from orchestrator.model.inventory import Host
from orchestrator.transport.routes import open_transport
from tests.onhost.transaction.place import DEBUG, HOST, wait_for

# The oldest that a host may have is tried where pyenv holds one.
PYTHONS = [sys.executable, "/usr/bin/python3"]
PYTHONS += map(str, sorted(Path("~/.pyenv/versions").expanduser().glob("3.8.*/bin/python"))[:1])


@pytest.mark.parametrize("python", PYTHONS)
def test_the_guard_of_a_killed_agent(place, python):
    """Agent killed, its code deleted: the guard still puts files and server back."""
    main = place.start_server()
    host = Host(HOST, transport="local", python=python, state_dir=place.state)
    agent = open_agent(open_transport(), host)
    try:
        assert agent.hello["executable"] == python
        began = agent.call("begin", place.begin_args(lease_s=60.0)).value
        assert place.guards() == [began["guard"]["pid"]]
        args, raw = place.stage_args()
        agent.call("stage", args, raw)
        agent.call("describe-server", main.as_json())
        agent.call("stop-server", {"which": "original", "timeout_s": 5, "port": None})
        agent.call("swap")
        start = {"argv": list(DEBUG), "env_set": {}, "env_unset": [], "cwd": None}
        agent.call("start-server", start)
        shutil.rmtree(Path(place.state, "agent"))
        assert agent.call("renew", {"lease_s": 0.5}).value["guard"] == "alive"
        os.kill(agent.hello["pid"], signal.SIGKILL)
        wait_for(lambda: place.status()[0]["guard"] == "dead")
        (session,) = place.status()
        assert session["state"] == "reverted by guard", session
        assert len(session["report"]) == 2
        assert place.changes() == []
        assert len(place.originals()) == 1
        assert place.servers() == place.originals()
    finally:
        agent.close()
