"""Collecting from the hosts when the controller's disk is full, or two threads want the same."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.client import Reply
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.model.record import Worker
from orchestrator.session.answer.collect import Collector, HostCollector
from orchestrator.session.hosts.fleet import Cancelled, Fleet
from orchestrator.session.hosts.member import Member
from orchestrator.session.kept.rundir import RunDir
from tests.session.world import Quiet

LIFE = {"pid": 7, "start_time": 1, "stdout": "/out", "stderr": "/err"}


class FakeAgent:
    """A host with one spool of ten bytes, slow to read, and one scheduler."""

    def __init__(self, together: threading.Barrier | None = None) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._together = together

    def on_event(self, take: Any) -> None:
        """No events come."""

    def call(self, op: str, args: Any = None, **kwargs: Any) -> Reply:
        """One op; no log is there to be given up."""
        self.asked.append((op, args))
        if op == "unfollow":
            raise HostError(f"there is no stream {args['stream']}", host="k0", code="missing")
        if op == "life":
            if self._together is not None:
                self._together.wait()
            return Reply({"processes": [{"pid": 9, "title": "sglang::scheduler_TP0"}]})
        if op == "read-spool":
            offset = args["offsets"].get("spool", 0)
            time.sleep(0.01)
            rows = [{"name": "spool", "offset": offset, "size": 10 - offset}]
            return Reply({"files": rows}, b"x" * (10 - offset))
        return Reply({})


def make_member(name: str, agent: Any) -> Member:
    """A member whose debug life runs."""
    return Member(Host(name), 0, agent=agent, life=LIFE)


def test_a_full_disk_of_the_controller_ends_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers are patched by then: the logs are done without, the records still come."""

    def full(path: Path, *args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    agent, run_dir, session = FakeAgent(), RunDir(tmp_path), None
    fleet = Fleet([make_member("k0", agent)], Quiet())
    collector = Collector(fleet, run_dir, session, "id")  # type: ignore[arg-type]
    monkeypatch.setattr(Path, "mkdir", full)
    collector.follow()
    assert collector.drain(fleet.members[0]) == ""
    collector.close()

    assert {op for op, _ in agent.asked} == {"read-spool"}
    problem = f"{tmp_path / 'hosts/k0/stdout.log'} is not whole: no space left on device"
    assert run_dir.problem == problem


def test_an_interrupt_before_the_logs_are_followed_loses_none(tmp_path: Path) -> None:
    """What never began has no end to wait for; the spool is read all the same."""
    agent = FakeAgent()
    fleet = Fleet([make_member("k0", agent)], Quiet())
    collector = Collector(fleet, RunDir(tmp_path), None, "id")  # type: ignore[arg-type]
    fleet.stop.set("interrupted", interrupted=True)
    with pytest.raises(Cancelled):
        collector.follow()
    assert collector.drain(fleet.members[0]) == ""
    collector.close()
    assert {op for op, _ in agent.asked} == {"read-spool"}


def test_a_piece_of_the_spool_is_read_once(tmp_path: Path) -> None:
    """The pump's thread and the end of a session may want it at the same time."""
    agent = FakeAgent()
    host = HostCollector(make_member("k0", agent), RunDir(tmp_path), "id")
    threads = [threading.Thread(target=host.pump) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    host.close()

    offsets = [args["offsets"] for _, args in agent.asked]
    assert offsets == [{}, {"spool": 10}, {"spool": 10}, {"spool": 10}]


def test_all_hosts_are_asked_for_their_workers_at_once(tmp_path: Path) -> None:
    """A fleet of many hosts takes no longer than its slowest."""
    together = threading.Barrier(3, timeout=30)
    members = [make_member(f"k{n}", FakeAgent(together)) for n in range(3)]
    fleet = Fleet(members, Quiet())
    collector = Collector(fleet, RunDir(tmp_path), None, "id")  # type: ignore[arg-type]
    collector.look_at_workers()
    assert collector.workers() == tuple(Worker(f"k{n}", "TP0", 9) for n in range(3))
