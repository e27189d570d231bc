"""Ending a session whose hosts differ: who waits for whom, and what is said of a failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.agent.client import Reply
from orchestrator.diagnostics import render_outcomes
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host, Inventory, LaunchAdopt, LaunchCommand, Server
from orchestrator.model.outcome import Outcome, is_as_before
from orchestrator.session.hosts.contact import Contact
from orchestrator.session.hosts.fleet import Fleet
from orchestrator.session.hosts.member import Member
from orchestrator.session.left import undo
from orchestrator.session.left.parts import all_sessions
from orchestrator.session.left.undo import Undo
from orchestrator.session.steps import lives, stages, tail

SERVER = Server("k", "i", ("k0", "k1"), LaunchAdopt(), "http://127.0.0.1:30000")
CLEAN = {"files": [], "verified": True}
_SAID = {
    "attach": {"epoch": 2},
    "renew": {"deadline_s": 1.0},
    "stop-server": {"left": [], "killed": [], "stopped": [1], "shm": [], "notes": []},
    "restore-server": {"pid": 1, "start_time": 1, "differences": []},
    "finish": {"left": []},
}


def left_with(state: str, why: str) -> dict[str, Any]:
    """What `revert` says of a file that is not back."""
    row = {"file": "x.py", "path": "/x.py", "state": state, "why": why, "kept": []}
    return {"files": [row], "verified": False}


FAILED = left_with("failed", "read-only file system")


class FakeAgent:
    """Answers as a host whose `revert` goes as asked, the last answer for ever."""

    is_open, lost = True, None

    def __init__(self, name: str, log: list[str], reverts: list[Any]) -> None:
        self._name, self._log, self._reverts = name, log, reverts or [CLEAN]
        self._is_held = False

    def call(self, op: str, *args: Any, **kwargs: Any) -> Reply:
        """One op; what matters for the order is logged."""
        if op in ("revert", "restore-server", "recover"):
            self._log.append(f"{self._name} {op}")
        if op == "recover":
            self._is_held = bool(args[0].get("hold"))
        if op == "finish" and self._is_held:
            self._log.append(f"{self._name} finish")
        if op in ("revert", "recover"):
            said = self._reverts.pop(0) if len(self._reverts) > 1 else self._reverts[0]
            bad = [f for f in said["files"] if not f.get("let_go")]
            left = [f"{f['path']}: {f['state']}, {f['why']}" for f in bad]
            server = said.get("server", {"pid": 1}) if said["verified"] else None
            report = said.get("report", [])
            return Reply(said | {"server": server, "left": left, "report": report})
        return Reply(_SAID[op])

    def close(self) -> None:
        """Nothing is open."""


class Heard:
    """Keeps the notes, in one list with the ops of all hosts."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def stage(self, host: str, stage: str, state: str, text: str = "") -> None:
        """Of no interest here."""

    def note(self, text: str) -> None:
        # The leases of these tests are shorter than a busy machine may stand still.
        if not text.startswith("the lease ran out at "):
            self.log.append(text)


def left_on(host: str, expired: bool) -> dict[str, Any]:
    """A patched session as `status` shows it."""
    return {
        "session": "20260101-000000-q-aaaaaaaa",
        "host": host,
        "holder": "me",
        "controller": "gone" if expired else "detached",
        "expired": expired,
        "files": [{"path": "/x.py", "state": "patched"}],
        "server": "debug life",
        "ran": True,
    }


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch) -> Any:
    """End a session on `k0` and `k1`: what was done in order, and the outcomes."""
    monkeypatch.setattr(undo, "_LEASE_S", 0.2)
    monkeypatch.setattr(undo, "_GRACE_S", 0.1)
    monkeypatch.setattr(tail, "_RETRY_S", 0.02)

    def end(
        expired: set[str],
        server: Server = SERVER,
        wait: Any = None,
        hosts: tuple[str, ...] = SERVER.hosts,
        **reverts: list[Any],
    ) -> tuple[list[str], list[Outcome]]:
        heard = Heard()
        wait = wait or (lambda *rest: heard.log.append("wait for ready"))
        monkeypatch.setattr(tail, "wait_ready", wait)
        contacts: list[Any] = []
        for name in hosts:
            agent: Any = FakeAgent(name, heard.log, reverts.get(name, []))
            contacts.append(Contact(Host(name), agent, None, (left_on(name, name in expired),)))
        transport: Any = None
        inventory = Inventory("inventory.yaml", {}, {}, {}, {"k": server})
        outcomes = Undo(contacts, inventory, transport, heard).end(all_sessions)
        return heard.log, outcomes

    return end


def test_a_host_whose_lease_is_over_is_recovered_before_the_others_start(end: Any) -> None:
    """Nobody waits until half a server is ready while the other half is still patched."""
    log, outcomes = end({"k0"})

    assert log[:3] == ["k1 revert", "k0 recover", "k1 restore-server"]
    assert log[3:] == ["wait for ready"] * 2 + ["k0 finish"]
    assert [(o.ok, o.state, o.server) for o in outcomes] == [(True, "reverted", "restored")] * 2


def test_a_recovery_that_fails_is_known_to_the_others(end: Any) -> None:
    """The other part is started, but not waited for; a file not put back counts as patched."""
    log, outcomes = end({"k0"}, k0=[FAILED])

    assert log == ["k1 revert", "k0 recover", "k1 restore-server"]
    assert [(o.ok, o.state, o.server, o.message) for o in outcomes] == [
        (False, "patched", "not back", "/x.py: failed, read-only file system"),
        (True, "reverted", "not back", "started again, but not ready without k0"),
    ]


def test_what_a_guard_left_is_told_once(end: Any) -> None:
    """Its report has the same words as what is left now, and those of what is not left any more."""
    why = "it was changed after the swap"
    report = ["the lease ran out: 0 of 1 files put back", f"left: /x.py: drift, {why}"]
    first = {"report": [*report, "left: the lock: busy"]}
    _, outcomes = end({"k0"}, k0=[left_with("drift", why) | first])
    assert outcomes[0].message == f"{report[0]}; /x.py: drift, {why}"
    assert outcomes[0].hints == (stages.COMPARE,)
    _, outcomes = end({"k0"}, k0=[CLEAN | first])
    assert outcomes[0].message == report[0]


def test_a_server_that_runs_again_otherwise_is_not_said_to_be_as_it_was(
    end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In what it differs is told once, whether we started it, a revert did, or its guard."""
    found = ("environ: PATH has another value, TOKEN is missing", "umask: 022, was 027")
    said = {"pid": 1, "start_time": 1, "differences": found}
    monkeypatch.setitem(_SAID, "restore-server", said)
    ran = f"the original server runs as process 1 ({'; '.join(found)})"
    k1 = [CLEAN | {"server": said, "report": [ran]}]
    _, outcomes = end({"k1"}, k1=k1)

    text = "; ".join(found)
    line = f"k0: files are as they were, server runs again, but differs; {text}"
    assert render_outcomes(outcomes[:1]) == [line]
    assert outcomes[1].message == f"the original server runs as process 1; {text}"
    assert [(o.ok, o.server) for o in outcomes] == [(True, "differs")] * 2
    assert is_as_before(outcomes)


def test_a_part_that_started_alone_says_how_the_other_is_started(end: Any) -> None:
    """Its command line as the inventory has it, secrets masked; also where a guard started it."""
    words = (
        "python3",
        "-m",
        "sglang.launch_server",
        "--api-key",
        "s3cret",
        "--node-rank",
        "{rank}",
    )
    launch = LaunchCommand(words, {"HF_TOKEN": "s3cret"}, "/srv/a b")
    server = replace(SERVER, launch=launch)
    message = (
        "started again, but not ready without k0; by hand on k0: `cd '/srv/a b' && env"
        " HF_TOKEN=[secret] python3 -m sglang.launch_server --api-key [secret] --node-rank 0`"
    )
    for expired in ({"k0"}, {"k0", "k1"}):
        log, outcomes = end(expired, server, k0=[FAILED])
        assert "wait for ready" not in log
        assert (outcomes[1].server, outcomes[1].message) == ("not back", message)


def test_sessions_whose_leases_are_over_are_waited_for(end: Any) -> None:
    """As a run does: what a host started by itself is only back once it is ready."""
    log, outcomes = end({"k0", "k1"})

    assert sorted(log[:2]) == ["k0 recover", "k1 recover"]
    assert log[2:4] == ["wait for ready"] * 2
    assert sorted(log[4:]) == ["k0 finish", "k1 finish"]
    assert [(o.ok, o.state, o.server) for o in outcomes] == [(True, "reverted", "restored")] * 2


def test_a_part_that_is_left_keeps_its_rank(end: Any) -> None:
    """What rank 1 is waited for is not what rank 0 is; nobody else's part holds it up."""
    seen = []

    def wait(agent: Any, server: Any, life: Any, rank: int, *rest: Any) -> None:
        seen.append((rank, rest[-1]()))

    _, outcomes = end({"k1"}, wait=wait, hosts=("k1",))

    assert seen == [(1, True)]
    assert [(o.host, o.ok, o.server) for o in outcomes] == [("k1", True, "restored")]


def test_a_server_that_does_not_get_ready_is_not_back(
    end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome of a recovered host carries what the wait found."""

    def die(agent: Any, server: Any, life: Any, rank: int, *rest: Any) -> None:
        raise HostError("the process ended", host=f"k{rank}", code="died")

    log, outcomes = end({"k0", "k1"}, wait=die)

    assert [(o.ok, o.state, o.server, o.message, o.hints) for o in outcomes] == [
        (False, "reverted", "not back", "the process ended", (undo.ONCE_MORE,))
    ] * 2
    assert not [line for line in log if line.endswith("finish")]


def test_no_original_starts_beside_a_patched_host(end: Any) -> None:
    """A revert that failed is tried until lease and grace are over; then the others start."""
    log, outcomes = end(set(), k1=[FAILED])

    note = "k1 is still patched; it is tried for 0.3 s more before the original server of k0 starts"
    assert log[:3] in (["k0 revert", "k1 revert", note], ["k1 revert", "k0 revert", note])
    assert set(log[3:-1]) == {"k1 revert"}
    assert log[-1] == "k0 restore-server"
    assert outcomes == [
        Outcome(
            "k0",
            "revert",
            True,
            "reverted",
            "not back",
            "started again though k1 may still be patched; started again, but not ready without k1",
        ),
        Outcome(
            "k1",
            "revert",
            False,
            "patched",
            "not back",
            "1 file was not put back; /x.py: could not be put back, read-only file system",
            ("mend what stands in the way, then run `sgldbg revert --all`",),
        ),
    ]


def test_a_revert_that_works_later_leaves_no_failure(end: Any) -> None:
    """What stood in the way may go: then all start, and nobody hears of an error."""
    log, outcomes = end(set(), k1=[FAILED, FAILED, CLEAN])

    assert log.count("k1 revert") == 3
    assert sorted(log[-4:]) == ["k0 restore-server", "k1 restore-server"] + ["wait for ready"] * 2
    assert [(o.ok, o.state, o.server) for o in outcomes] == [(True, "reverted", "restored")] * 2


def test_an_edit_of_somebody_else_is_not_waited_for(end: Any) -> None:
    """Time does not better it: the servers start at once, and the hint is about versions."""
    log, outcomes = end(set(), k1=[left_with("drift", "it was changed after the swap")])

    assert log.count("k1 revert") == 1
    assert {"k0 restore-server", "k1 restore-server"} < set(log)
    assert (outcomes[1].state, outcomes[1].message, outcomes[1].hints) == (
        "drifted",
        "1 file was left alone; /x.py: drift, it was changed after the swap",
        (
            "compare the versions; `sgldbg revert --all --force` puts back the original that is"
            " kept, or where the install was made anew, leaves it as it is",
        ),
    )


def test_a_server_that_waits_for_a_host_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """More time would not help it, so that nobody is told to allow it."""

    def stay_away(transport: Any, session: str, member: Member, until_s: float) -> None:
        member.state = member.server = "unknown"

    def wait(agent: Any, server: Server, *rest: Any) -> None:
        raise HostError("not ready", host="k0", code="not-ready", hints=["allow it more time"])

    monkeypatch.setattr(tail, "regain", stay_away)
    monkeypatch.setattr(tail, "wait_ready", wait)
    heard = Heard()
    here, away = (Member(Host(name), rank) for rank, name in enumerate(SERVER.hosts))
    for member in (here, away):
        member.begun = member.described = member.stopping = True
    agent: Any = FakeAgent("k0", heard.log, [])
    here.agent = agent
    transport: Any = None
    tail.Tail(Fleet((here, away), heard), SERVER, transport, "s", "restore", 0.0).run()

    assert away.server == "unknown"
    assert here.error is not None
    assert (here.error.notes, here.error.hints) == (
        (lives.ORIGINAL,),
        ("see to k1 first: a part of the server belongs there",),
    )


def test_what_is_let_go_is_not_as_it_was(end: Any) -> None:
    """It needs no more work, so that nothing fails; the words do not claim that it came back."""
    row = {"file": "x.py", "path": "/x.py", "state": "untouched", "kept": [], "let_go": True}
    why = "somebody else changed it before the swap"
    said = {"files": [row | {"why": why}], "verified": True}
    _, outcomes = end({"k0"}, k0=[said], k1=[said])
    assert [(o.ok, o.state, o.message) for o in outcomes] == [(True, "let go", f"/x.py: {why}")] * 2
    assert render_outcomes(outcomes[:1]) == [
        "k0: files are as they were, but for what somebody else changed, server is as it was;"
        f" /x.py: {why}"
    ]
    assert is_as_before(outcomes)
