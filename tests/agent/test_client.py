"""Calls over a real agent on real pipes: each gets its own answer, and none waits for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.agent import frames
from orchestrator.agent.client import AgentClient, Reply
from orchestrator.agent.ship import Zipapp
from orchestrator.diagnostics import render
from orchestrator.errors import HostError
from tests.agent.conftest import OpenAgent


def wait_until(fact: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < until, "waited 30 s"
        time.sleep(0.01)


def test_value_and_bytes_come_back(agent: AgentClient) -> None:
    """A reply carries the op's value and its raw bytes, unchanged."""
    args = {"text": "é\udce9\x00", "n": [1, None, 2.5]}
    assert agent.call("echo", args, b"\x00\xff\n") == Reply(args, b"\x00\xff\n")
    assert agent.call("echo") == Reply({}, b"")


def test_concurrent_calls_keep_apart(agent: AgentClient) -> None:
    """Sixteen threads share the channel and each sees only its own answers."""

    def ask(number: int) -> bool:
        raw = bytes([number % 251]) * (number * 700)
        return agent.call("echo", {"n": number}, raw) == Reply({"n": number}, raw)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(200)))


def test_largest_frames_pass(agent: AgentClient) -> None:
    """64 MiB go both ways in one frame."""
    raw = os.urandom(1 << 20) * 64
    assert len(raw) == frames.RAW_LIMIT
    assert agent.call("echo", {}, raw, timeout_s=60).raw == raw


def test_refusal_keeps_code_and_data(agent: AgentClient) -> None:
    """The agent's own words arrive as data."""
    with pytest.raises(HostError) as caught:
        agent.call("refuse")
    error = caught.value
    assert (error.host, error.code, error.trace) == ("here", "changed", "")
    assert error.data == {"file": "a.py", "expected": None}
    assert render(error) == "error: `a.py` was changed since the plan\n --> host here"


def test_crash_brings_its_traceback(agent: AgentClient) -> None:
    """A fault of ours on the host names the line, and the agent lives on."""
    with pytest.raises(HostError) as caught:
        agent.call("crash")
    assert caught.value.code == "crash"
    assert caught.value.message == "`crash` failed: KeyError: 'missing'"
    assert 'return {}["missing"]' in caught.value.trace
    assert agent.call("echo").value == {}


def test_unknown_op_is_refused(agent: AgentClient) -> None:
    """An op that this agent does not have is a refusal, not a silence."""
    with pytest.raises(HostError) as caught:
        agent.call("dance")
    assert (caught.value.code, str(caught.value)) == (
        "unknown-op",
        "this agent knows no op `dance`",
    )


def test_too_large_reply_is_refused(agent: AgentClient) -> None:
    """A reply beyond the limits becomes a refusal and the channel stays whole."""
    for size in ({"header": 1 << 20, "raw": 0}, {"header": 0, "raw": (64 << 20) + 1}):
        with pytest.raises(HostError) as caught:
            agent.call("large", size)
        assert caught.value.code == "too-large"
    assert agent.call("large", {"header": 1000, "raw": 5}).raw == b"yyyyy"


def test_time_out_says_what_is_not_known(agent: AgentClient, tmp_path: Path) -> None:
    """After a time-out the host may still be at it; the late answer disturbs nobody."""
    with pytest.raises(HostError) as caught:
        agent.call("wait-for", {"path": str(tmp_path / "go")}, timeout_s=0.05)
    assert caught.value.code == "timeout"
    assert render(caught.value) == (
        "error: no answer to `wait-for` within 0.05 s; the host may still be doing it\n"
        " --> host here"
    )
    (tmp_path / "go").touch()
    assert agent.call("echo", {"n": 1}).value == {"n": 1}


def test_killed_agent_fails_everyone(agent: AgentClient, tmp_path: Path) -> None:
    """When the agent dies, all that wait learn it at once, and so does every later call."""
    with ThreadPoolExecutor(4) as pool:
        missing = {"path": str(tmp_path / "never")}
        waiting = [pool.submit(agent.call, "wait-for", missing) for _ in range(4)]
        with pytest.raises(HostError) as caught:
            agent.call("kill", {"signal": signal.SIGKILL})
        errors = [future.exception(timeout=30) for future in waiting]
    assert [getattr(error, "code", None) for error in errors] == ["lost"] * 4
    assert agent.lost is not None
    assert render(caught.value) == (
        "error: lost the host: the agent ended\n"
        " --> host here\n"
        "the last lines from the host:\n"
        "  | (the process ended with status -9)"
    )
    with pytest.raises(HostError) as later:
        agent.call("echo")
    assert later.value.code == "lost"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x00\x00\x00\x02{]", "a header that is not JSON"),
        (b"\xff\xff\xff\xff", "a header of 4294967295 bytes, the limit is 1048576"),
    ],
)
def test_broken_frame_ends_the_channel(agent: AgentClient, sent: bytes, reason: str) -> None:
    """Nothing after a broken frame is believed."""
    with pytest.raises(HostError) as caught:
        agent.call("send-bytes", {}, sent)
    assert caught.value.code == "lost"
    assert caught.value.message.startswith(f"lost the host: the agent sent {reason}")


def test_broken_request_ends_the_agent(agent: AgentClient) -> None:
    """The agent believes nothing after a broken frame either, and says why it left."""
    agent._channel.write(frames.encode({"id": 1, "op": 5}))
    wait_until(lambda: agent.lost is not None)
    assert agent.lost is not None
    assert agent.lost.tail == (
        "sgldbg: a broken frame from the controller: a request needs `id`, `op` and `args`",
        "(the process ended with status 3)",
    )


def test_interrupted_request_ends_the_channel(
    agent: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a frame is never followed by another one."""

    def interrupted(data: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(agent._channel, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.call("echo")
    assert agent.lost is not None
    assert str(agent.lost) == "lost the host: `echo` was broken off while it was being sent"


def test_events_come_in_order(agent: AgentClient) -> None:
    """Every event reaches every callback, in the order in which it was sent."""
    got: list[tuple[int, int]] = []
    agent.on_event(lambda header, raw: got.append((header["offset"], len(raw))))
    agent.call("logs", {"count": 100, "size": 65536})
    wait_until(lambda: len(got) == 100)
    assert got == [(number * 65536, 65536) for number in range(100)]


def test_failing_callback_does_not_cost_the_channel(
    agent: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback that raises gets no more events; the fault is shown and calls still work."""
    shown: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda given: shown.append(str(given.exc_value)))
    calls: list[int] = []

    def callback(header: object, raw: bytes) -> None:
        calls.append(1)
        raise RuntimeError("our bug")

    agent.on_event(callback)
    agent.call("logs", {"count": 3, "size": 10})
    wait_until(lambda: bool(shown))
    assert (shown, calls) == (["our bug"], [1])
    assert agent.call("echo").value == {}


def test_prints_and_children_do_not_reach_the_frames(agent: AgentClient) -> None:
    """What is printed on the host, by us or by a child, goes to stderr; stdin is empty.

    A child inherits 0, 1, 2 and nothing else (3 is `ls` reading the directory).
    """
    assert agent.call("chat").value == ["0", "1", "2", "3"]
    agent.close()
    assert agent._channel.diagnostics()[:2] == ("a stray print", "a stray child")


def test_flood_of_stderr_blocks_nobody(agent: AgentClient) -> None:
    """stderr is drained all the time, in bounded memory."""
    assert agent.call("flood", {"lines": 4000}).value == "flooded"
    assert len(agent._channel.diagnostics()) <= 41


def test_renew_does_not_wait_for_slow_requests(agent: AgentClient, tmp_path: Path) -> None:
    """Heartbeats are answered while as many requests run as may run at once; more are refused."""
    path = {"path": str(tmp_path / "go")}
    with ThreadPoolExecutor(70) as pool:
        waiting = [pool.submit(agent.call, "wait-for", path) for _ in range(65)]
        wait_until(lambda: any(future.done() for future in waiting))
        assert agent.call("renew", {}, timeout_s=5).value == {"deadline_s": 1.0}
        (tmp_path / "go").touch()
        errors = [error for future in waiting if (error := future.exception(timeout=30))]
    assert [getattr(error, "code", "") for error in errors] == ["overloaded"]
    assert str(errors[0]) == "64 requests are running already"


def test_end_of_stdin_is_told_and_ends_the_agent(
    start_agent: OpenAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of stdin the lease is shortened, then the agent leaves."""
    monkeypatch.setenv("SGLDBG_TEST_EOF", str(tmp_path / "eof"))
    agent = start_agent()
    pid = agent.hello["pid"]
    agent.close()
    assert (tmp_path / "eof").read_text() == "eof\n"
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(HostError) as caught:
        agent.call("echo")
    assert str(caught.value) == "`echo` was cut off: the channel was closed"
    assert agent.lost is None


def test_running_request_does_not_keep_the_agent(agent: AgentClient, tmp_path: Path) -> None:
    """An agent whose request never ends leaves all the same."""
    pid = agent.hello["pid"]
    with pytest.raises(HostError):
        agent.call("wait-for", {"path": str(tmp_path / "never")}, timeout_s=0.05)
    started_s = time.monotonic()
    agent.close()
    assert time.monotonic() - started_s < 12
    assert not Path(f"/proc/{pid}").exists()


def test_nobody_reads_ends_the_agent(zipapp: Zipapp, tmp_path: Path) -> None:
    """An agent whose answers nobody reads leaves, although its stdin is still open."""
    (tmp_path / "agent.pyz").write_bytes(zipapp.data)
    process = subprocess.Popen(
        [sys.executable, "-IS", str(tmp_path / "agent.pyz"), "serve", "mark"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin:
        with process.stdout:
            assert process.stdout.readline() == b"mark ready\n"
        process.stdin.write(frames.encode({"id": 1, "op": "echo"}))
        process.stdin.flush()
        assert process.wait(30) == 1
