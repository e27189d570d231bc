"""An SSH server in this process, on loopback, that knows one user and runs commands only."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    MSG_CHANNEL_REQUEST,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_SUCCEEDED,
)

from orchestrator.demo.exec import Exec

LOG_CHANNEL = "sgldbg.demo.sshd"
CLOSE_TIMEOUT_S = 5.0


class Sshd:
    """One host of the demonstration: its port, its home directory, its environment.

    Every connection and every command has its own threads; `close` ends them all.
    """

    def __init__(
        self,
        *,
        user: str,
        user_key: paramiko.PKey,
        host_key: paramiko.PKey,
        home: Path,
        env: Mapping[str, str],
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Listen at once; port 0 is any free one. `env` is all that commands see."""
        self.user = user
        self.user_key = user_key
        self.host_key = host_key
        self.home = home
        self.env = env
        self._socket = socket.create_server((address, port), backlog=64)
        self.address, self.port = self._socket.getsockname()[:2]
        self._lock = threading.Lock()
        self._transports: list[paramiko.Transport] = []
        self._execs: list[Exec] = []
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="demo-sshd", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, end all commands and connections; may be called again."""
        with self._lock:
            self._closed = True
            execs, transports = list(self._execs), list(self._transports)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which `close` does not
        self._thread.join(CLOSE_TIMEOUT_S)
        self._socket.close()
        for transport in transports:
            transport.close()
        for running in execs:
            running.close(CLOSE_TIMEOUT_S)
        for transport in transports:
            transport.join(CLOSE_TIMEOUT_S)

    def add(self, running: Exec) -> bool:
        """Keep track of a command; false when the server is closing."""
        with self._lock:
            self._execs = [e for e in self._execs if not e.is_over]
            if self._closed:
                return False
            self._execs.append(running)
            running.start()
            return True

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            try:
                self._serve(connection)
            except (OSError, EOFError, paramiko.SSHException):
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = _Transport(connection)
        transport.set_log_channel(LOG_CHANNEL)
        transport.daemon = True
        transport.add_server_key(self.host_key)
        with self._lock:
            self._transports = [t for t in self._transports if t.is_alive()]
            if self._closed:
                transport.close()
                return
            self._transports.append(transport)
        # With an event the call returns at once, so that a client that says nothing is waited
        # for by its own thread only.
        transport.start_server(event=threading.Event(), server=_Rules(self))


class _Rules(paramiko.ServerInterface):
    """Who may come in, and what for."""

    def __init__(self, sshd: Sshd) -> None:
        self._sshd = sshd
        self.pending: dict[int, Exec] = {}

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = username == self._sshd.user and key == self._sshd.user_key
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED if kind == "session" else OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        text = command.decode("utf-8", "surrogateescape")
        running = Exec(channel, text, self._sshd.home, self._sshd.env)
        self.pending[channel.get_id()] = running
        return True

    def start_pending(self, channel: paramiko.Channel) -> None:
        """Start what was asked for on this channel, now that the client has been told so."""
        running = self.pending.pop(channel.get_id(), None)
        if running is not None and not self._sshd.add(running):
            channel.close()


def _answer_then_start(channel: paramiko.Channel, message: paramiko.Message) -> None:
    """paramiko asks the server before it answers the client, so a command that is over at once
    could end its channel before the client knows that it was started. No public hook comes
    later than the answer, hence this place in the table of handlers."""
    paramiko.Channel._handle_request(channel, message)  # type: ignore[attr-defined]
    rules = channel.get_transport().server_object
    if isinstance(rules, _Rules):
        rules.start_pending(channel)


class _Transport(paramiko.Transport):
    _channel_handler_table: ClassVar[dict[int, Any]] = {
        **vars(paramiko.Transport)["_channel_handler_table"],
        MSG_CHANNEL_REQUEST: _answer_then_start,
    }


def silence_log() -> None:
    """Keep what clients do wrong off the terminal: paramiko logs each as an error."""
    logger = logging.getLogger(LOG_CHANNEL)
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
