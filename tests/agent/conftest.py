"""Agents over real pipes, on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.client import AgentClient
from orchestrator.agent.ship import Zipapp, open_agent
from orchestrator.model.inventory import Host
from orchestrator.transport.local import LocalTransport
from tests.agent.zipapps import make_test_zipapp

OpenAgent = Callable[..., AgentClient]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing under the real home is read or written."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def zipapp() -> Zipapp:
    """The agent with the ops of `remote_main.py`."""
    return make_test_zipapp()


@pytest.fixture
def start_agent(zipapp: Zipapp) -> Iterator[OpenAgent]:
    """Open agents on this machine; closed when the test ends."""
    opened: list[AgentClient] = []

    def start(**host: Any) -> AgentClient:
        agent = open_agent(LocalTransport(), Host("here", transport="local", **host), 30.0, zipapp)
        opened.append(agent)
        return agent

    yield start
    for agent in opened:
        agent.close()


@pytest.fixture
def agent(start_agent: OpenAgent) -> AgentClient:
    """One agent on this machine."""
    return start_agent()
