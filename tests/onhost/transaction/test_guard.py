"""The guard: nobody who holds a session can keep it from being undone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.onhost.agent.__main__ import show_status
from orchestrator.onhost.agent.files import files
from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.held.facts import Facts
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import guard, recover, serving, status
from tests.onhost.transaction.place import (
    EDITED,
    HOST,
    LEASE_S,
    NOBODY,
    SESSION,
    apply,
    op,
    stage,
    wait_for,
)


def patched(place):
    """Whether the planned bytes are in place."""
    return [(place.root / name).read_bytes() for name in EDITED] == list(EDITED.values())


def wait_for_the_guard(place):
    """Wait until the guard has done its work and left; the one session that status shows."""
    wait_for(lambda: not place.guards())
    (session,) = place.status()
    return session


def as_before(place):
    """The tree and the server are as at the start."""
    assert place.changes() == []
    assert place.servers() == place.originals() != []


def test_renewals_keep_it_patched(place, held):
    """A lease that is renewed does not run out, however long the session takes."""
    first = lease.read(place.directory())
    assert first is not None
    wait_for(lambda: lease.now_s() > first.deadline_s + 0.3)
    assert patched(place)
    assert held.poll() is None


def test_a_killed_holder(place, held, monkeypatch, capsys):
    """SIGKILL to the agent: files and server are back a second after the lease, with a report."""
    held.kill()
    began = time.monotonic()
    session = wait_for_the_guard(place)
    assert time.monotonic() - began < LEASE_S + 5.0
    as_before(place)
    assert session["state"] == "reverted by guard"
    assert session["server"] == "restored"
    assert session["report"] == [
        "the lease ran out: 3 of 3 files put back, all verified",
        f"the original server runs as process {place.originals()[0]} (no differences)",
    ]
    assert session["over"] is True
    monkeypatch.setenv("SGLDBG_STATE", place.state)
    assert show_status() == 0
    assert f"s1 on {HOST}: reverted by guard\n" in capsys.readouterr().out
    kept = os.stat(os.path.join(place.directory(), "server.json"))
    assert kept.st_mode & 0o777 == 0o600  # until the session is ended: it may end while it loads
    value = recover.recover(place.directory())
    assert value["left"] == []
    assert value["report"] == session["report"]
    assert place.status() == []
    assert not list(Path(place.state).rglob("server.json"))
    as_before(place)
    assert os.listdir(place.top / "tmp") == []


def test_a_stopped_holder(place, held):
    """An agent under SIGSTOP cannot renew, and does not live to go on after the revert."""
    held.send_signal(signal.SIGSTOP)
    session = wait_for_the_guard(place)
    assert session["state"] == "reverted by guard"
    held.send_signal(signal.SIGCONT)
    assert held.wait(30) == -signal.SIGKILL
    as_before(place)


def test_the_end_of_the_channel_shortens_the_lease(place, held):
    """End of stdin leaves the lease its grace, not its length; then the guard acts."""
    before = lease.read(place.directory())
    assert held.stdin is not None
    held.stdin.close()
    assert held.wait(30) == 0
    after = lease.read(place.directory())
    assert after is not None
    assert after.deadline_s <= before.deadline_s + LEASE_S
    wait_for_the_guard(place)
    as_before(place)


def test_a_late_swap_fails(place):
    """What a guard has unlinked cannot be swapped in by an agent that was fenced meanwhile."""
    context = place.begin()
    stage(place, context)
    planned = context.session.facts.files
    place.expire()
    session = recover.take_over(place.directory(), lease.GUARD, 1.0)
    recover.run_tail(session)
    for one in planned:
        with pytest.raises(FileNotFoundError):
            files.put_in(one)
    with pytest.raises(Refusal) as refused:
        op(context, "swap")
    assert refused.value.code == "fenced"
    assert place.changes() == []
    session.close()


def test_only_one_guard(place):
    """A second guard on a session that has one is refused, the first one stays."""
    place.begin(with_guard=True)
    (watching,) = place.guards()
    with pytest.raises(Refusal) as refused:
        guard.start(place.directory())
    assert refused.value.code == "guard-failed"
    assert refused.value.message == ("the guard could not be started: a guard watches already")
    wait_for(lambda: place.guards() == [watching])


def test_it_leaves_a_kept_session_alone(place):
    """`keep` ends the lease without a revert; a later revert works from the journal."""
    context = place.begin(with_guard=True)
    apply(place, context)
    assert op(context, "keep") is None
    assert place.guards() == []
    assert patched(place)
    (session,) = place.status()
    assert session["state"] == "patched, kept"
    assert session["deadline_s"] is None
    assert session["expired"] is False
    assert op(context, "renew", lease_s=1.0)["deadline_s"] is None
    value = recover.recover(place.directory())
    assert value["verified"]
    assert place.changes() == []


def test_it_does_what_it_can(place, monkeypatch):
    """A debug life that cannot be stopped does not keep the files patched; it is named."""
    main = place.start_server()
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    op(context, "stop-server", which="original", timeout_s=5, port=None)
    op(context, "swap")
    op(context, "start-server", argv=["sleep", "86393"], env_set={}, env_unset=[], cwd=None)
    place.expire()

    def broken(*args):
        raise OSError("no such luck")

    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.onhost.agent.server.process.stop", broken)
        session = recover.take_over(place.directory(), lease.GUARD, 1.0)
        value = recover.run_tail(session)
    assert value["left"] == ["stopping the debug life: no such luck"]
    assert value["verified"]
    assert value["server"] is None
    assert place.changes() == []
    value = recover.run_tail(session)
    assert value["left"] == []
    as_before(place)
    session.close()


def test_it_outlives_its_own_code(place, tmp_path):
    """The guard needs neither its files nor its interpreter's once it watches."""
    code = tmp_path / "code"
    source = Path(guard.__file__).parents[1]
    subprocess.run(["cp", "-r", source, code], check=True)
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    place.expire(agent=NOBODY, deadline_s=lease.now_s() + 60)
    program = "import sys; sys.path.insert(0, %r); from code_.session.guard import main; "
    program += "main(sys.argv[1])"
    os.rename(code, tmp_path / "code_")
    command = [sys.executable, "-I", "-S", "-c", program % str(tmp_path), place.directory()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wait_for(place.guards)
    subprocess.run(["rm", "-r", tmp_path / "code_"], check=True)
    place.expire()
    assert wait_for_the_guard(place)["state"] == "reverted by guard"
    assert place.changes() == []


def test_files_are_back_before_the_server_has_ended(place):
    """A debug life that takes its time to end keeps no file patched while it does."""
    main = place.start_server()
    context = place.begin()
    stage(place, context)
    op(context, "describe-server", pid=main.pid, start_time=main.start_time)
    op(context, "stop-server", which="original", timeout_s=1, port=None)
    op(context, "swap")
    stubborn = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
    op(context, "start-server", argv=stubborn, env_set={}, env_unset=[], cwd=None)
    context.session.close()
    place.expire(agent=NOBODY)
    seen = []

    def trace(text):
        if text.startswith("the files are back"):
            seen.append((patched(place), len(place.servers()) > 0))

    session = recover.take_over(place.directory(), lease.GUARD, 1.0)
    assert recover.run_tail(session, trace=trace)["left"] == []
    assert seen == [(False, True)]
    as_before(place)
    session.close()


def test_a_stopped_guard(place):
    """A guard under SIGSTOP at its work is ended by the next contact, which goes on."""
    context = place.begin()
    stage(place, context)
    op(context, "swap")
    context.session.close()
    program = "import sys, time; from orchestrator.onhost.agent.held import lease;"
    program += "from orchestrator.onhost.agent.session import recover;"
    program += "s = recover.take_over(sys.argv[1], lease.GUARD, 1.0);"
    # Named: a lock that nobody refers to is released at once.
    program += "held = s.locked(); held.__enter__(); print('at work', flush=True); time.sleep(60)"
    place.expire(agent=NOBODY)
    command = [sys.executable, "-c", program, place.directory()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as working:
        assert working.stdout is not None
        try:
            assert working.stdout.readline() == b"at work\n"
            working.send_signal(signal.SIGSTOP)
            assert recover.recover(place.directory())["verified"]
            assert working.wait(30) == -signal.SIGKILL
        finally:
            working.kill()
    assert place.changes() == []


DONE = {"verified": True, "unlocked": True, "locks": ["lock"], "files": ["one"], "by": "guard"}


@pytest.mark.parametrize(
    ("changes", "states", "over"),
    [
        ({}, ["original", "original"], True),
        ({"files": [], "locks": [], "verified": None, "unlocked": False}, [], True),
        ({"server": {"ran": False}, "restored": None}, ["original"], True),
        ({"restored": None, "stopping": None}, ["original"], True),
        ({"by": ""}, ["original"], False),
        ({"verified": False}, ["original"], False),
        ({"verified": None}, ["original"], False),
        ({"unlocked": False}, ["original"], False),
        ({"restored": None}, ["original"], False),
        ({"restored": None, "started": {"step": "start:debug"}}, ["original"], False),
        ({"restored": None, "lost_server": True}, ["original"], False),
        ({"restored": {"pid": os.getpid(), "start_time": 1}}, ["original"], False),
        ({}, ["changed after it was put back"], False),
        ({}, ["original", "patched"], False),
    ],
)
def test_when_only_a_report_waits(changes, states, over):
    """Proven, unlocked, and the server as it was: else something is left for whoever comes."""
    facts = Facts()
    me = lease.me()
    restored = {"pid": me.pid, "start_time": me.start_time}
    given = {"server": {"ran": True}, "restored": restored, "stopping": {"port": 1}}
    for name, value in {**DONE, **given, **changes}.items():
        setattr(facts, name, value)
    server = serving.read_server(facts, f"{SESSION}/{HOST}")
    assert status._is_over(facts, [{"state": state} for state in states], server) is over
