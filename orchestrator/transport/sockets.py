"""Sockets under SSH that answer at once and notice a dead link."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import tempfile
import threading
import time

from orchestrator.errors import HostError
from orchestrator.userfile import reason_of

# A dead link is noticed within 3 + 3 x 3 s when idle, 12 s with data on its way: below the 15 s
# that this project promises. paramiko's own keep-alive only sends and never counts answers.
_KEEPALIVE_IDLE_S = 3
_KEEPALIVE_INTERVAL_S = 3
_KEEPALIVE_COUNT = 3
_USER_TIMEOUT_MS = 12_000
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


class QuickSocket(socket.socket):
    """A TCP socket that acknowledges at once and tells a dead link from an empty one.

    Linux falls back to delayed acknowledgements by itself, and sshd's Nagle then waits 40 ms for
    ours at every small exchange; so the option is set again after each receive.
    """

    def recv(self, size: int, flags: int = 0) -> bytes:
        """As in the base class; a dead link is a `ConnectionResetError`."""
        try:
            data = super().recv(size, flags)
        except TimeoutError as error:
            raise _told_apart(error) from None
        if hasattr(socket, "TCP_QUICKACK"):
            with contextlib.suppress(OSError):
                self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]
        """As in the base class; a dead link is a `ConnectionResetError`."""
        try:
            return super().send(data, flags)
        except TimeoutError as error:
            raise _told_apart(error) from None


def _told_apart(error: TimeoutError) -> OSError:
    # Python calls the kernel's ETIMEDOUT and its own "no data yet" by one class, and paramiko
    # takes both for "no data yet".
    if error.errno == errno.ETIMEDOUT:
        return ConnectionResetError(errno.ECONNRESET, "the host does not answer any more")
    return error


def open_tcp(host: str, address: str, port: int, timeout_s: float, family: str) -> socket.socket:
    """Connect to the first of the address's addresses that answers.

    Raises `HostError` (`unreachable`) with the reason of the last one tried.
    """
    until = time.monotonic() + timeout_s
    try:
        found = socket.getaddrinfo(
            address, port, _FAMILIES.get(family, socket.AF_UNSPEC), socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _unreachable(host, f"the name `{address}` is not found: {reason}") from error
    reason = f"`{address}` has no address"
    for number, (kind, _, protocol, _, where) in enumerate(found):
        left_s = (until - time.monotonic()) / (len(found) - number)
        sock = QuickSocket(kind, socket.SOCK_STREAM, protocol)
        try:
            sock.settimeout(max(0.1, left_s))
            sock.connect(where)
            _set_options(sock)
        except OSError as error:
            sock.close()
            reason = f"{where[0]} port {port}: {_reason(error, timeout_s)}"
            continue
        return sock
    raise _unreachable(host, reason)


def _reason(error: OSError, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    return reason_of(error)


def _unreachable(host: str, message: str) -> HostError:
    return HostError(message, host=host, code="unreachable")


def _set_options(sock: socket.socket) -> None:
    options = [
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        # Linux, then its name on macOS.
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        (socket.IPPROTO_TCP, "TCP_KEEPALIVE", _KEEPALIVE_IDLE_S),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", _KEEPALIVE_COUNT),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", _USER_TIMEOUT_MS),
    ]
    for level, name, value in options:
        if hasattr(socket, name):
            sock.setsockopt(level, getattr(socket, name), value)


class CommandSocket:
    """What paramiko needs of a socket, over the stdin and stdout of a `ProxyCommand`."""

    def __init__(self, host: str, command: str) -> None:
        """Start the command by `/bin/sh`; raises `HostError` (`unreachable`)."""
        self._closing = threading.Lock()
        self._said: list[str] = []
        self._socket, far = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the command)
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=far.fileno(),
                stdout=far.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self._socket.close()
            self._errors.close()
            raise _unreachable(
                host, f"`{command}` cannot be started: {reason_of(error)}"
            ) from error
        finally:
            far.close()

    def recv(self, size: int) -> bytes:
        """As of a socket."""
        return self._socket.recv(size)

    def send(self, data: bytes) -> int:
        """As of a socket."""
        return self._socket.send(data)

    def settimeout(self, timeout_s: float | None) -> None:
        """As of a socket."""
        self._socket.settimeout(timeout_s)

    def shutdown(self, how: int) -> None:
        """As of a socket."""
        self._socket.shutdown(how)

    def fileno(self) -> int:
        """As of a socket."""
        return self._socket.fileno()

    def getpeername(self) -> tuple[str, int]:
        """A name for messages of paramiko's."""
        return ("proxy", 0)

    def said(self) -> list[str]:
        """The last lines of the command's stderr."""
        with self._closing:
            return self._said if self._errors.closed else self._read_said()

    def close(self) -> None:
        """End the command and collect it; may be called again, and from several threads."""
        with self._closing:
            if self._errors.closed:
                return
            self._socket.close()
            if self._process.poll() is None:
                self._process.terminate()
                try:
                    self._process.wait(2.0)
                except subprocess.TimeoutExpired:
                    self._process.kill()
            self._process.wait()
            self._said = self._read_said()
            self._errors.close()

    def _read_said(self) -> list[str]:
        size = os.fstat(self._errors.fileno()).st_size
        data = os.pread(self._errors.fileno(), 4096, max(0, size - 4096))
        return data.decode("utf-8", "backslashreplace").splitlines()
