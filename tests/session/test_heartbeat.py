"""The heartbeat beside its renewals: a guard that has died is replaced."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.agent.client import Reply
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.session.hosts.fleet import Fleet
from orchestrator.session.hosts.heartbeat import Heartbeat
from orchestrator.session.hosts.member import Member
from tests.session.test_undo import Heard


class Guarded:
    """An agent whose guard is dead until it is asked for another, which takes as long as told."""

    is_open, lost = True, None

    def __init__(self, works: bool) -> None:
        self._works, self._guard = works, "dead"
        self.go_on, self.asked, self.beats = threading.Event(), threading.Event(), 0
        self.beaten = threading.Semaphore(0)

    def call(self, op: str, args: Mapping[str, Any] | None = None, **kwargs: Any) -> Reply:
        """The two ops of a heartbeat."""
        if op == "renew":
            self.beaten.release()
            return Reply({"deadline_s": 1.0, "now_s": 0.0, "guard": self._guard})
        assert op == "guard"
        assert not self.asked.is_set() or not self._works, "asked again while it was at it"
        self.asked.set()
        assert self.go_on.wait(30)
        if not self._works:
            raise HostError(
                "the guard could not be started: no fork", host="k", code="guard-failed"
            )
        self._guard = "alive"
        return Reply({"guard": {"pid": 1, "start_time": 1}})


@pytest.mark.parametrize(
    ("works", "note"),
    [
        (True, "its guard had died, another was started"),
        (
            False,
            "its guard has died, and no other could be started:"
            " the guard could not be started: no fork",
        ),
    ],
)
def test_a_dead_guard_is_replaced(works: bool, note: str) -> None:
    """Beats go on meanwhile, one question at a time, and the outcome says it once."""
    agent = Guarded(works)
    member = Member(Host("k"), 0, agent=agent, begun=True)  # type: ignore[arg-type]
    with Heartbeat(Fleet([member], Heard()), lease_s=0.04):  # type: ignore[arg-type]
        assert agent.asked.wait(30)
        for _ in range(3):
            assert agent.beaten.acquire(timeout=30)
        agent.go_on.set()
        for _ in range(20):
            assert agent.beaten.acquire(timeout=30)
            if member.notes:
                break
    assert member.notes == [note]
