"""A process on this machine over pipes: for hosts with `transport: local`, and for tests."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.streams import WRITE_STALL_S, LastLines
from orchestrator.userfile import reason_of

_READ_BYTES = 256 << 10
# The agent leaves by itself when its stdin ends or at SIGTERM: it shortens its lease (the step
# that is running is waited for) and lets running steps end. Beyond that it is stuck.
_EOF_S = 0.5
_LEAVE_S = 16.0
_DRAIN_S = 2.0
_TURN_S = 1.0


class LocalTransport:
    """Runs commands by `/bin/sh` on this machine."""

    def open(self, host: Host, command: str, timeout_s: float) -> LocalChannel:
        """Start the command in a process session of its own: Ctrl-C here is not for the agent."""
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                # Libraries set variables that Python never hears of: GNU readline `COLUMNS`. A
                # start command of the user's would hand them on to the server.
                env=dict(os.environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise HostError(
                f"no process can be started: {reason_of(error)}", host=host.name, code="unreachable"
            ) from error
        return LocalChannel(host.name, process)


class LocalChannel:
    """The pipes of one process."""

    def __init__(self, host: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._host = host
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._errors = LastLines()
        self._closing = threading.Lock()
        self._reading = threading.Lock()
        self._closed = False
        os.set_blocking(self._stdin.fileno(), False)
        self._drain = threading.Thread(
            target=self._read_errors, name=f"sgldbg-stderr-{host}", daemon=True
        )
        self._drain.start()

    def write(self, data: bytes) -> None:
        """Send all; `lost` where nobody reads, or nobody reads for too long."""
        left = memoryview(data)
        try:
            while left:
                if not _wait_for(self._stdin.fileno(), select.POLLOUT, WRITE_STALL_S):
                    raise self._lost(f"it has read nothing for {WRITE_STALL_S:g} s")
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(self._stdin.fileno(), left) :]
        except (OSError, ValueError) as error:
            raise self._lost("it does not read any more") from error

    def read(self) -> bytes:
        """Wait for some bytes; `b""` is the end."""
        with self._reading:
            while not self._stdout.closed:
                # The turn is for a `close` that a stray holder of the pipe would keep waiting.
                if _wait_for(self._stdout.fileno(), select.POLLIN, _TURN_S):
                    return os.read(self._stdout.fileno(), _READ_BYTES)
                if self._closed:
                    break
        return b""

    def close(self) -> None:
        """Close stdin and let the process leave; ask it to, and end it, where it does not."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._stdin.close()
            if not self._ends_within(_EOF_S):
                self._process.terminate()
                if not self._ends_within(_LEAVE_S):
                    self._process.kill()
                    self._process.wait()
            # Children of the process may hold its stderr open (they should not); the thread ends
            # with them, and nobody waits for it.
            self._drain.join(_DRAIN_S)
            with self._reading:
                self._stdout.close()

    def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            return True
        return False

    def diagnostics(self) -> tuple[str, ...]:
        """The last lines of stderr; the exit status where the process has ended."""
        self._ends_within(0.2)
        self._drain.join(0.2)
        code = self._process.poll()
        lines = self._errors.lines()
        return lines if code is None else (*lines, f"(the process ended with status {code})")

    def _lost(self, reason: str) -> HostError:
        return HostError(
            f"lost the process on this machine: {reason}",
            host=self._host,
            code="lost",
            tail=self.diagnostics(),
        )

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while data := os.read(stream.fileno(), 1 << 16):
                self._errors.feed(data)


def _wait_for(fd: int, event: int, timeout_s: float) -> bool:
    """Whether the descriptor becomes ready in time; the end of a pipe counts as ready."""
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(timeout_s * 1000))
