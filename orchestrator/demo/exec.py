"""One command that an SSH client asked for: a process whose three streams are the channel's."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import paramiko

CHUNK_BYTES = 32_768  # the largest packet that clients accept by default
GLANCE_S = 0.1  # how soon a process that says nothing notices that its channel is gone
LEAVE_S = 5.0  # what a process gets, after the end of its streams, to put things in order
HURRY_S = 1.0  # the same when the server itself is closing


# What paramiko raises on a link that has just died, depending on how far its thread has got.
LINK_ERRORS = (OSError, EOFError, paramiko.SSHException)


class Exec:
    """Bridges a process and a channel in two threads; both ends push back when they are full.

    When the channel goes away the process sees the end of its streams, as under sshd. If it then
    does not leave by itself, its process group is ended; what has moved to a process session of
    its own lives on, and so does what the command left in the background when it ended.
    """

    def __init__(
        self, channel: paramiko.Channel, command: str, cwd: Path, env: Mapping[str, str]
    ) -> None:
        self._channel = channel
        self._command = command
        self._cwd = cwd
        self._env = env
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Run in the background; never raises."""
        self._begin(self._run)

    def close(self, timeout_s: float) -> None:
        """Let go of the channel and wait until process and threads have ended."""
        self._closing.set()
        self._close_channel()
        deadline = time.monotonic() + timeout_s
        while not self.is_over and time.monotonic() < deadline:
            for thread in list(self._threads):
                thread.join(GLANCE_S)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        return not any(thread.is_alive() for thread in list(self._threads))

    def _begin(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="demo-sshd-exec", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._cwd,
                env=dict(self._env),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # such as a command with a NUL in it
            self._finish(f"demo sshd: {error}\n".encode(), 126)
            return
        assert process.stdin is not None
        self._begin(self._pump_in, process.stdin.fileno(), process)
        self._pump_out(process)
        status = self._wait(process)
        self._finish(b"", 128 - status if status < 0 else status)

    def _finish(self, complaint: bytes, status: int) -> None:
        with contextlib.suppress(*LINK_ERRORS):
            if complaint:
                self._channel.sendall_stderr(complaint)
            self._channel.send_exit_status(status)
        self._close_channel()

    def _close_channel(self) -> None:
        with contextlib.suppress(*LINK_ERRORS):
            self._channel.close()

    @property
    def _is_gone(self) -> bool:
        return self._channel.closed or self._closing.is_set()

    def _pump_in(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        """Channel to stdin. What a process does not read any more is thrown away."""
        assert process.stdin is not None
        os.set_blocking(descriptor, False)
        broken = False
        with contextlib.suppress(*LINK_ERRORS):  # the end of the link is an end of input
            while data := self._channel.recv(CHUNK_BYTES):
                broken = broken or not self._write(descriptor, data)
        with contextlib.suppress(OSError):
            process.stdin.close()

    def _write(self, descriptor: int, data: bytes) -> bool:
        """Whether the process has taken all of it."""
        room = select.poll()
        room.register(descriptor, select.POLLOUT)
        view = memoryview(data)
        while view:
            # Asked only when there is no room: what came before the end is still delivered.
            if not room.poll(GLANCE_S * 1000):
                if self._is_gone:
                    return False
                continue
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:
                continue
            except OSError:
                return False
        return True

    def _pump_out(self, process: subprocess.Popen[bytes]) -> None:
        """stdout and stderr to the channel until both end or the channel is gone."""
        assert process.stdout is not None
        assert process.stderr is not None
        send = {
            process.stdout.fileno(): self._channel.sendall,
            process.stderr.fileno(): self._channel.sendall_stderr,
        }
        ready = select.poll()
        for descriptor in send:
            ready.register(descriptor, select.POLLIN)
        with process.stdout, process.stderr, contextlib.suppress(*LINK_ERRORS):
            while send and not self._is_gone:
                for descriptor, _ in ready.poll(GLANCE_S * 1000):
                    data = os.read(descriptor, CHUNK_BYTES)
                    if data:
                        send[descriptor](data)
                    else:
                        ready.unregister(descriptor)
                        del send[descriptor]

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """The exit status; ends the process group once the channel is gone and time is up."""
        since = None
        while True:
            try:
                return process.wait(GLANCE_S)
            except subprocess.TimeoutExpired:
                if not self._is_gone:
                    continue
            now = time.monotonic()
            since = since or now
            if now - since > (HURRY_S if self._closing.is_set() else LEAVE_S):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
