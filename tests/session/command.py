"""`sgldbg` as the tests call it: in this process with eyes on every stage, or in one of its own."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.cli.app import main
from orchestrator.cli.live import LiveProgress

# Called with host, stage, state and text, right when the stage is told, in its own thread.
Hook = Callable[[str, str, str, str], None]


@dataclass(frozen=True)
class Result:
    """What a command left: its exit code and both texts; stages are no part of `err`."""

    code: int
    out: str
    err: str
    stages: str = ""


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object, hook: Hook | None = None) -> Result:
    """Run a command here; `hook` sees every stage and may do something about it."""
    stages: list[str] = []
    lock = threading.Lock()

    def stage(self: LiveProgress, host: str, stage: str, state: str, text: str = "") -> None:
        with lock:
            stages.append(f"{host}: {stage} {state}" + (f" ({text})" if text else ""))
        if hook is not None:
            hook(host, stage, state, text)

    def note(self: LiveProgress, text: str) -> None:
        with lock:
            stages.append(text)

    out, err = io.StringIO(), io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(LiveProgress, "stage", stage)
        patch.setattr(LiveProgress, "note", note)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(a) for a in arguments])
    return Result(code, out.getvalue(), err.getvalue(), "\n".join(stages))


def once(at: tuple[str, str, str], act: Callable[[], object]) -> Hook:
    """A hook that acts when a host's stage gets into a state, the first time only."""
    lock = threading.Lock()
    left = [act]

    def hook(host: str, stage: str, state: str, text: str) -> None:
        if (host, stage, state) == at:
            with lock:
                todo, left[:] = list(left), []
            for one in todo:
                one()

    return hook


def told(text: str, folder: Path) -> str:
    """A text with everything that differs from run to run replaced by a word."""
    for pattern, word in (
        (re.escape(str(folder)), "TMP"),
        (r"/[^\s`]*/clusters\d*/cluster\d+/hosts", "HOSTS"),
        (r"\d{8}-\d{6}-([a-z0-9-]+?)-[0-9a-f]{8}\b", r"ID-\1"),
        (r"runs/\d{8}-\d{6}-([a-z0-9-]*?[a-z])(-\d+)?$", r"runs/TIME-\1"),
        (r"runs/\d{8}-\d{6}-", "runs/TIME-"),
        (r"\S+/traces/\S+\.txt", "TRACE"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( UTC)?", "WHEN"),
        (r"\b[0-9a-f]{64}\b", "SHA256"),
        (r"\b(pid|process|demo-\d: pid) \d+", r"\1 N"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"\b\d+\.\d+ s\b", "N s"),
        (r"reverts by itself in \d+ s", "reverts by itself in N s"),
        (r"[\w.-]+@[\w.-]+", "USER@HOST"),
    ):
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


class Running:
    """A command in a process of its own, whose stderr is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in () if self.process.stderr.closed else self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_line(self, text: str, limit_s: float = 60.0, times: int = 1) -> None:
        """Wait until so many lines of stderr contain `text`."""

        def told() -> bool:
            return sum(text in line for line in self.lines) >= times

        with self._changed:
            self._changed.wait_for(lambda: self._ended or told(), limit_s)
            assert told(), "\n".join(self.lines)

    def send(self, number: int) -> None:
        """Send a signal to the command only."""
        self.process.send_signal(number)

    def end(self, limit_s: float = 90.0) -> Result:
        """Wait for its end."""
        code = self.process.wait(limit_s)
        self._thread.join(10)
        assert self.process.stdout is not None
        return Result(code, self.process.stdout.read(), "\n".join(self.lines))


@contextlib.contextmanager
def start(*arguments: object, unheard: bool = False) -> Iterator[Running]:
    """Run a command in a process; it is killed where the test leaves it running.

    `unheard`: nobody reads its stderr from the first line on, and its stdout takes nothing.
    """
    process = subprocess.Popen(
        [*_to(unheard), sys.executable, "-m", "orchestrator", *(str(a) for a in arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=_hear_hangups,
    )
    assert process.stderr is not None
    if unheard:
        process.stderr.close()
    running = Running(process)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(30)
        running._thread.join(10)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def _to(unheard: bool) -> list[str]:
    """Words before a command line; exec keeps the pid for `send`."""
    return ["/bin/sh", "-c", 'exec "$@" > /dev/full', "sh"] if unheard else []


def _hear_hangups() -> None:
    """Where the tests themselves run under `nohup`, the commands are not to."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def seconds_since(began: float) -> float:
    """How long ago a monotonic time was."""
    return time.monotonic() - began
