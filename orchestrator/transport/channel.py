"""One SSH channel with its process, over a connection of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import paramiko

from orchestrator.errors import HostError
from orchestrator.transport.streams import WRITE_STALL_S, LastLines
from orchestrator.userfile import reason_of

_READ_BYTES = 256 << 10
# paramiko copies what it is given; pieces of a packet's size keep that linear.
_WRITE_BYTES = 32 << 10
# How often a waiting reader looks around.
_TURN_S = 1.0
# Through a jump host or a proxy command the kernel cannot watch the whole way, so the far sshd is
# asked itself; the sum stays below the 15 s of a dead link.
_ASK_EVERY_S = 4.0
_SILENT_S = 13.0
_EXIT_WAIT_S = 0.3
_JOIN_S = 5.0


class SshChannel:
    """The stdin and stdout of one remote process; stderr is drained and its last lines kept."""

    def __init__(
        self, host: str, channel: paramiko.Channel, close: Callable[[], None], ask: bool
    ) -> None:
        """Take over a channel; `close` ends the connection, `ask` watches the link from here."""
        self._host = host
        self._channel = channel
        self._transport: Any = channel.get_transport()
        self._close = close
        self._closing = threading.Lock()
        self._closed = threading.Event()
        self._errors = LastLines()
        self._answered_s = time.monotonic() if ask else float("inf")
        self._threads = [self._thread("stderr", self._read_errors)]
        if ask:
            self._threads.append(self._thread("alive", self._ask))
        channel.settimeout(_TURN_S)
        for thread in self._threads:
            thread.start()

    def write(self, data: bytes) -> None:
        """Send all; `lost` where the link is gone or the process takes nothing for long."""
        view = memoryview(data)
        taken_s = time.monotonic()
        while view:
            try:
                sent = self._channel.send(bytes(view[:_WRITE_BYTES]))
            except TimeoutError:
                self._check_link()
                if time.monotonic() - taken_s > WRITE_STALL_S:
                    raise self._lost(f"it has read nothing for {WRITE_STALL_S:g} s") from None
                continue
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise self._lost(_reason(error)) from error
            if not sent:
                raise self._lost("the channel is closed")
            taken_s = time.monotonic()
            view = view[sent:]

    def read(self) -> bytes:
        """Wait for some bytes; `b""` is the end."""
        while True:
            try:
                data = self._channel.recv(_READ_BYTES)
            except TimeoutError:
                self._check_link()
                continue
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise self._lost(_reason(error)) from error
            # An empty answer is also what paramiko makes of a dead connection.
            if data or self._has_ended():
                return data
            raise self._lost(_reason(self._transport.get_exception()))

    def close(self) -> None:
        """End the channel and the connection under it."""
        with self._closing:
            if self._closed.is_set():
                return
            self._closed.set()
            with contextlib.suppress(Exception):
                self._channel.close()
            with contextlib.suppress(Exception):
                self._close()
            for thread in self._threads:
                thread.join(_JOIN_S)

    def diagnostics(self) -> tuple[str, ...]:
        """The last lines of stderr; the exit status where the process has ended."""
        lines = self._errors.lines()
        if self._channel.status_event.wait(_EXIT_WAIT_S) and self._channel.exit_status >= 0:
            self._threads[0].join(_EXIT_WAIT_S)
            status = f"(the process ended with status {self._channel.exit_status})"
            return (*self._errors.lines(), status)
        return lines

    def _thread(self, what: str, target: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=target, name=f"sgldbg-{what}-{self._host}", daemon=True)

    def _has_ended(self) -> bool:
        if self._closed.is_set() or self._channel.eof_received:
            return True
        return bool(self._channel.closed and self._transport.is_active())

    def _check_link(self) -> None:
        if not self._transport.is_active() and not self._closed.is_set():
            raise self._lost(_reason(self._transport.get_exception()))
        if time.monotonic() - self._answered_s > _SILENT_S:
            raise self._lost(f"no answer for {_SILENT_S:g} s")

    def _lost(self, reason: str) -> HostError:
        return HostError(
            f"lost the connection: {reason}",
            host=self._host,
            code="lost",
            tail=self._errors.lines(),
        )

    def _read_errors(self) -> None:
        while True:
            try:
                data = self._channel.recv_stderr(_WRITE_BYTES)
            except TimeoutError:
                continue
            except Exception:  # the connection is gone; `read` tells why
                return
            if not data:
                return
            self._errors.feed(data)

    def _ask(self) -> None:
        """Ask the far sshd for a sign of life; any answer will do, also a refusal."""
        while not self._closed.wait(_ASK_EVERY_S) and self._transport.is_active():
            with contextlib.suppress(Exception):
                self._transport.global_request("keepalive@openssh.com", wait=True)
            if self._transport.is_active():
                self._answered_s = time.monotonic()


def _reason(error: BaseException | None) -> str:
    if error is None or (isinstance(error, EOFError) and not str(error)):
        return "the host closed it"
    if isinstance(error, OSError) and error.strerror:
        return reason_of(error)
    return str(error).rstrip(".") or type(error).__name__
