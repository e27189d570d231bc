"""SSH by fabric and paramiko over sockets of our own, as the user's ssh configuration says."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import paramiko
from fabric import Config, Connection

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.auth import KeyStrategy
from orchestrator.transport.channel import SshChannel
from orchestrator.transport.config import Asked, SshConfig, make_asked, parse_hop, read_config
from orchestrator.transport.hostkeys import KnownHost, judge, read_known_host
from orchestrator.transport.sockets import CommandSocket, QuickSocket, open_tcp
from orchestrator.userfile import reason_of

# sshd's MaxStartups (10:30:100) drops connections at random from the tenth that has not logged in.
_AT_ONCE = 8
_BANNER_TRIES = 5
_BANNER_PAUSE_S = 0.15
_HOPS = 8
_JOIN_S = 5.0
_SLACK_S = 2.0
# What the system offers for an `ssh-rsa` key: the signature's name differs from the key's.
_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")


class _BannerError(Exception):
    """The host took the connection and dropped it before it said who it is."""

    def __init__(self, message: str, said: list[str]) -> None:
        super().__init__(message)
        self.said = said


@dataclass(slots=True)
class _Link:
    """What must be closed together: the connection to a host, its socket, the hops before it."""

    connection: Connection
    sock: Any
    watched: bool
    via: _Link | None = None

    def close(self) -> None:
        """Close all, and wait for paramiko's thread; never raises."""
        transport = self.connection.client.get_transport()
        # First the socket: paramiko's thread then wakes at once and not at its next turn.
        with contextlib.suppress(Exception):
            self.sock.shutdown(socket.SHUT_RDWR)
        for close in (self.connection.close, self.sock.close):
            with contextlib.suppress(Exception):
                close()
        if transport is not None:
            transport.join(_JOIN_S)
        if self.via is not None:
            self.via.close()


class SshTransport:
    """Opens one connection per channel; connections to one address are set up eight at a time."""

    def __init__(self) -> None:
        self._gates: dict[tuple[str, int], threading.BoundedSemaphore] = {}
        # paramiko reports each failed connection to the root logger too, which prints it.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())

    def open(self, host: Host, command: str, timeout_s: float) -> SshChannel:
        """Connect, check the host's key, log in and run the command."""
        until = time.monotonic() + timeout_s
        link = self._connect(make_asked(host), until)
        try:
            transport: Any = link.connection.client.get_transport()
            channel = transport.open_session(timeout=_left(until))
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            link.close()
            raise HostError(
                f"the host opens no channel: {_text(error)}", host=host.name, code="lost"
            ) from error
        except BaseException:
            link.close()
            raise
        return SshChannel(host.name, channel, link.close, ask=not link.watched)

    def _connect(
        self, asked: Asked, until: float, via: _Link | None = None, depth: int = 0
    ) -> _Link:
        """Connect through `via`, else as the configuration says; owns `via` from here on."""
        try:
            config = read_config(asked)
            if depth > _HOPS:
                raise HostError(
                    f"more than {_HOPS} jump hosts, or a circle of them, lie before"
                    f" `{asked.target}`",
                    host=asked.host,
                    code="unreachable",
                )
            if via is None:
                via = self._connect_hops(config, until, depth)
            with self._gate(config, until):
                return self._log_in(config, until, via)
        except BaseException:
            if via is not None:
                via.close()
            raise

    def _connect_hops(self, config: SshConfig, until: float, depth: int) -> _Link | None:
        via: _Link | None = None
        for hop in [parse_hop(text, config) for text in config.proxy_jump]:
            try:
                via = self._connect(hop, until, via, depth + 1)
            except HostError as error:
                note = f"this was on the way, at the jump host `{hop.target}`"
                error.notes = (*error.notes, note)
                raise
        return via

    @contextlib.contextmanager
    def _gate(self, config: SshConfig, until: float) -> Iterator[None]:
        address = (config.hostname, config.port)
        gate = self._gates.setdefault(address, threading.BoundedSemaphore(_AT_ONCE))
        if not gate.acquire(timeout=_left(until)):
            raise HostError(
                f"no turn within the time: {_AT_ONCE} other connections to {config.key_name} are"
                " being set up",
                host=config.host,
                code="unreachable",
            )
        try:
            yield
        finally:
            gate.release()

    def _log_in(self, config: SshConfig, until: float, via: _Link | None) -> _Link:
        """Log in; only a dropped greeting is tried again, since nothing was said before it."""
        for number in range(1, _BANNER_TRIES + 1):
            sock = _open_socket(config, until, via)
            try:
                return self._log_in_over(sock, config, until, via)
            except _BannerError as error:
                reason = error
            pause_s = random.uniform(1, 3) * _BANNER_PAUSE_S * number
            if time.monotonic() + pause_s > until:
                break
            if number < _BANNER_TRIES:
                time.sleep(pause_s)
        what = (
            "took the connection and said nothing in time"
            if time.monotonic() >= until
            else f"dropped the connection before its greeting, {number} times"
        )
        raise HostError(
            f"{config.hostname} port {config.port} {what}",
            host=config.host,
            code="unreachable",
            notes=[str(reason)],
            tail=reason.said,
        )

    def _log_in_over(self, sock: Any, config: SshConfig, until: float, via: _Link | None) -> _Link:
        known = read_known_host(config)
        strategy = KeyStrategy(config)
        connection = Connection(
            config.hostname,
            user=config.user,
            port=config.port,
            # Nothing of fabric's own files: the ssh configuration is resolved already.
            config=Config(lazy=True, ssh_config=paramiko.SSHConfig()),
            gateway=False,
            forward_agent=False,
            connect_kwargs={
                "sock": sock,
                # Later than the others, which know what it was that took too long.
                "timeout": _left(until) + _SLACK_S,
                "banner_timeout": _left(until),
                "auth_timeout": _left(until),
                "auth_strategy": strategy,
                "transport_factory": _transport_factory(known),
            },
        )
        link = _Link(connection, sock, watched=isinstance(sock, QuickSocket))
        try:
            connection.client.set_missing_host_key_policy(_Policy(config, known))
            connection.open()
        except HostError:
            link.close()
            raise
        except (paramiko.SSHException, OSError, EOFError) as error:
            said = sock.said() if isinstance(sock, CommandSocket) else []
            link.close()
            if "banner" in str(error):
                raise _BannerError(_text(error), said) from error
            raise HostError(
                f"{config.hostname} port {config.port}: the SSH connection failed: {_text(error)}",
                host=config.host,
                code="unreachable",
                tail=said,
            ) from error
        except BaseException:
            link.close()
            raise
        finally:
            strategy.close()
        link.via = via
        return link


class _Policy(paramiko.MissingHostKeyPolicy):
    """Asked by paramiko about every key, since its own list of known hosts stays empty."""

    def __init__(self, config: SshConfig, known: KnownHost) -> None:
        self._config = config
        self._known = known

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        judge(self._config, self._known, key.get_name(), key.asbytes())


def _transport_factory(known: KnownHost) -> Callable[..., paramiko.Transport]:
    """Make transports that ask first for the types of keys that are known of the host."""

    def make(sock: Any, **options: Any) -> paramiko.Transport:
        transport = paramiko.Transport(sock, **options)
        security: Any = transport.get_security_options()
        wanted = [
            name
            for key_type in known.key_types()
            for name in (_RSA_SIGNATURES if key_type == "ssh-rsa" else (key_type,))
        ]
        offered = list(security.key_types)
        first = [name for name in wanted if name in offered]
        security.key_types = (*first, *(name for name in offered if name not in first))
        return transport

    return make


def _open_socket(config: SshConfig, until: float, via: _Link | None) -> Any:
    if via is not None:
        transport: Any = via.connection.client.get_transport()
        try:
            return transport.open_channel(
                "direct-tcpip",
                (config.hostname, config.port),
                ("127.0.0.1", 0),
                timeout=_left(until),
            )
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise HostError(
                f"{config.hostname} port {config.port} is not reached from"
                f" {via.connection.host}: {_text(error)}",
                host=config.host,
                code="unreachable",
            ) from error
    if config.proxy_command:
        return CommandSocket(config.host, config.proxy_command)
    timeout_s = _left(until)
    if config.connect_timeout_s is not None:
        timeout_s = min(timeout_s, config.connect_timeout_s)
    try:
        return open_tcp(config.host, config.hostname, config.port, timeout_s, config.address_family)
    except HostError as error:
        error.notes = (*error.notes, *config.notes)
        raise


def _left(until: float) -> float:
    return max(0.1, until - time.monotonic())


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return reason_of(error)
    return str(error).strip().rstrip(".") or type(error).__name__
