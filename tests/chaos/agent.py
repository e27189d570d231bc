"""A real agent in a forked process that holds still at a chosen journal line until it is let go."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from typing import Any

from orchestrator.onhost.agent import ops_session
from orchestrator.onhost.agent.held import lease
from orchestrator.onhost.agent.held.journal import Record
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import begin, guard, recover
from orchestrator.onhost.agent.wire.frames import Reader, encode
from orchestrator.onhost.agent.wire.serve import serve
from tests.onhost.transaction.place import Place, no_guard

_CASE_S = 60.0
OnLine = Callable[[Record], None]


class ReachedPoint(Exception):
    """The agent stands at the chosen line; nothing else happens in it until `let_go`."""


class OpRefused(Exception):
    """The agent answered `ok: false`, or is `gone`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Forked:
    """A forked process that stops at the `point`-th line of its session's journal."""

    def __init__(
        self, point: int, work: Callable[[OnLine], int], keep: tuple[int, ...] = ()
    ) -> None:
        said, saying = os.pipe()
        going, go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _close_all_but((0, 1, 2, saying, going, *keep))
                os._exit(work(_Hold(point, saying, going)))
            finally:
                os._exit(99)
        os.close(saying)
        os.close(going)
        self._said, self._go = said, go
        self.code: int | None = None

    def let_go(self) -> None:
        """Let it continue from its point; does nothing for one that is dead."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._go, b"g")

    def send(self, number: int) -> None:
        """Signal it, unless it is gone."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for it."""
        self.send(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Its exit code, once it ended."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def reached(self) -> bool:
        """Wait until it stands at its point, or ended without coming there."""
        return select.select([self._said], [], [], _CASE_S) != ([], [], []) and self._look()

    def _look(self) -> bool:
        return os.read(self._said, 1) == b"!"

    def close(self) -> None:
        """Give the descriptors back; ends the process where it is still there."""
        self.kill()
        os.close(self._said)
        os.close(self._go)


def _close_all_but(kept: tuple[int, ...]) -> None:
    """Another agent's pipe that is open here as well would never end."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


class _Hold:
    """Called with every line; at the chosen one it says so and waits."""

    def __init__(self, point: int, saying: int, going: int) -> None:
        self._left, self._saying, self._going = point, saying, going
        self._pid = os.getpid()

    def __call__(self, record: Record) -> None:
        self._left -= 1
        if self._left == 0 and os.getpid() == self._pid:
            os.write(self._saying, b"!")
            os.read(self._going, 1)


class Agent(Forked):
    """The agent's own loop over two pipes, with a controller's simplest end of them."""

    def __init__(self, place: Place, point: int, guarded: bool = True) -> None:
        theirs_in, self._requests = os.pipe()
        self._replies, theirs_out = os.pipe()

        def work(on_line: OnLine) -> int:
            os.dup2(theirs_in, 0)
            os.dup2(theirs_out, 1)
            os.close(theirs_in)
            os.close(theirs_out)
            os.dup2(os.open(place.top / "agent.log", os.O_WRONLY | os.O_CREAT, 0o600), 2)
            if not guarded:
                guard.start = no_guard
            return _serve(place.state, on_line)

        super().__init__(point, work, (theirs_in, theirs_out))
        os.close(theirs_in)
        os.close(theirs_out)
        self._reader = Reader(self._replies)
        self._number = 0
        ready = b""
        while not ready.endswith(b"ready\n"):
            ready += os.read(self._replies, 1)

    def call(self, op: str, args: dict[str, Any], raw: bytes = b"") -> Any:
        """One op. Raises `ReachedPoint` where the agent comes to its point in it."""
        self._number += 1
        header = {"id": self._number, "op": op, "args": args}
        try:
            if self._requests < 0:
                raise BrokenPipeError
            os.write(self._requests, encode(header, raw))
        except BrokenPipeError:
            raise OpRefused("gone", "the agent is gone") from None
        return self.answer()

    def answer(self) -> Any:
        """Wait for the answer to the last request."""
        ready, _, _ = select.select([self._replies, self._said], [], [], _CASE_S)
        assert ready, "no answer in time"
        if self._said in ready and self._look():
            raise ReachedPoint
        frame = self._reader.read()
        if frame is None:
            raise OpRefused("gone", "the agent is gone")
        header = frame[0]
        if not header["ok"]:
            raise OpRefused(header["code"], header["message"] + header["trace"])
        return header["value"]

    def cut(self) -> None:
        """End the controller's side of the channel."""
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1

    def close(self) -> None:
        """End everything."""
        self.cut()
        super().close()
        os.close(self._replies)


def _serve(state_dir: str, on_line: OnLine) -> int:
    context = Context(state_dir)

    def op_begin(context: Context, args: dict[str, Any], raw: bytes) -> Any:
        context.hold(begin.begin(context.state_dir, args, guard.start, on_line))
        return None, b""

    return serve("m", {**ops_session.OPS, "begin": op_begin}, context)


def start_recovery(place: Place, directory: str, point: int, force: bool) -> Forked:
    """The next contact at its work, stopping at a line of it; 0 is its code where nothing is left.

    A session that somebody holds is left to them, which is 2.
    """

    def work(on_line: OnLine) -> int:
        try:
            session = recover.take_over(directory, lease.RECOVER, 5.0)
        except Refusal:
            return 2
        session.journal.on_line = on_line
        with session.locked():
            left = recover.run_tail(session, force)["left"]
            if left:
                os.write(2, f"left: {'; '.join(left)}\n".encode())
                return 1
            recover.end(session)
        return 0

    return Forked(point, work)


def start_tail(place: Place, point: int, by: str = lease.GUARD) -> Forked:
    """A guard at its work, as far as its session's journal knows, stopping at a line of it."""

    def work(on_line: OnLine) -> int:
        session = recover.take_over(place.directory(), by, 5.0)
        session.journal.on_line = on_line
        with session.locked():
            left = recover.run_tail(session)["left"]
        return 1 if left else 0

    return Forked(point, work)
