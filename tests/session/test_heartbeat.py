"""The heartbeat beside its renewals: a guard that has died is replaced."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.client import Reply
from orchestrator.diagnostics import render
from orchestrator.errors import FleetError, HostError, SessionError
from orchestrator.model.inventory import Host
from orchestrator.session.hosts import heartbeat, pause
from orchestrator.session.hosts.fleet import Fleet
from orchestrator.session.hosts.heartbeat import Heartbeat
from orchestrator.session.hosts.member import Member
from tests.session.test_undo import Heard

TEXT = Path(__file__).parents[1] / "bad_input" / "texts" / "stood-still.txt"


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


class HeardAll(Heard):
    """With the notes of a pause, which is what is looked for here."""

    def note(self, text: str) -> None:
        self.log.append(text)


class Asleep:
    """An agent that a guard has ended while the controller stood still in its beat."""

    is_open, lost = True, None

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock

    def call(self, op: str, args: Mapping[str, Any] | None = None, **kwargs: Any) -> Reply:
        """The first beat is in time, the second one is twelve seconds late."""
        if self._clock[-1]:
            raise HostError("lost the host: the agent ended", host="k", code="lost")
        self._clock.append(12.0)
        return Reply({"deadline_s": 1.0, "now_s": 0.0, "guard": "alive"})


def test_a_controller_that_stood_still_longer_than_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its hosts look lost, since guards have ended the agents: the lease is named, once."""
    clock, heard = [0.0], HeardAll()
    agent: Any = Asleep(clock)
    for room in (heartbeat, pause):
        monkeypatch.setattr(room, "read_clock", lambda: clock[-1])
    monkeypatch.setattr(pause.time, "time", lambda: 1_000_012.0)
    members = [Member(Host(f"k{rank}"), rank, agent=agent, begun=True) for rank in range(2)]
    fleet = Fleet(members, heard)
    beating = Heartbeat(fleet, lease_s=8.0)
    beating._beat_s = 0.01
    with beating:
        assert fleet.stop.wait(30)
    text = (
        "the lease ran out at 1970-01-12 13:46:48 UTC: sgldbg stood still for 12 s, and a lease"
        " lasts 8 s"
    )
    assert (fleet.pause, heard.log) == (text, [text])

    lost = HostError("lost the host: the agent ended", host="k0", code="lost")
    refused = HostError("no room", host="k1", code="no-space")
    for cause, blamed in [
        (lost, True),
        (FleetError("`follow` failed", [lost, lost]), True),
        (SessionError(fleet.stop.reason), True),
        (refused, False),
        (FleetError("`follow` failed", [lost, refused]), False),
        (None, False),
    ]:
        found = pause.blame_pause(cause, fleet)
        if blamed:
            assert found is not None
            said = render(found).replace("1970-01-12 13:46:48 UTC", "<time>")
            assert said + "\n" == TEXT.read_text()
        else:
            assert found is cause
    fleet.pause = ""
    assert pause.blame_pause(lost, fleet) is lost
