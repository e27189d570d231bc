"""Public-key authentication the way the user's ssh would do it, with an account of every try."""

from __future__ import annotations

import base64
import contextlib
import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from orchestrator.errors import HostError
from orchestrator.transport.config import SshConfig
from orchestrator.transport.hostkeys import fingerprint
from orchestrator.userfile import read_user_file, reason_of

_MAX_SIZE_BYTES = 1 << 20  # a key takes a few KB


@dataclass(frozen=True, slots=True)
class _Offer:
    key: paramiko.PKey
    origin: str


class KeyStrategy:
    """What paramiko asks to authenticate a transport; never asks the user for anything.

    Order as in OpenSSH: the agent's keys that the configuration lists, its other keys (not with
    `IdentitiesOnly`), then key files. `close` gives up the agent's socket.
    """

    def __init__(self, config: SshConfig) -> None:
        self._config = config
        self._tried: list[str] = []
        self._agent = _Agent()

    def authenticate(self, transport: paramiko.Transport) -> list[str]:
        """Return once a key was accepted; raises `HostError` (`auth`) that names every try."""
        user = self._config.user
        for offer in self._offers():
            try:
                further = transport.auth_publickey(user, offer.key)
            except paramiko.BadAuthenticationType as error:
                raise self._failed(f"the host takes no keys, only {_words(error)}") from error
            except paramiko.AuthenticationException:
                self._tried.append(f"{offer.origin}: not accepted")
                continue
            except paramiko.SSHException as error:
                # Typically the host's limit on tries.
                self._tried.append(f"{offer.origin}: the host ended the connection ({error})")
                break
            if not further:
                return []
            raise self._failed(f"after the key the host also asks for {', '.join(further)}")
        return self._without_key(transport)

    def close(self) -> None:
        """Leave the ssh agent alone again."""
        self._agent.close()

    def _without_key(self, transport: paramiko.Transport) -> list[str]:
        """Some hosts let a known network in without a key; if not, they say what they want."""
        try:
            transport.auth_none(self._config.user)
        except paramiko.BadAuthenticationType as error:
            raise self._failed(f"the host takes: {_words(error)}") from error
        except paramiko.SSHException:
            raise self._failed("") from None
        return []

    def _offers(self) -> Iterator[_Offer]:
        listed = self._config.identity_files
        in_agent = self._agent.keys(self._config.identity_agent)
        blobs = {path: _read_public(path) for path in listed}
        for path, blob in blobs.items():
            for key in in_agent:
                if blob is not None and key.asbytes() == blob:
                    yield _Offer(key, f"{path} (by the ssh agent)")
        if not self._config.identities_only:
            for key in in_agent:
                if key.asbytes() not in blobs.values():
                    yield _Offer(key, f"key {fingerprint(key.asbytes())} of the ssh agent")
        held = {key.asbytes() for key in in_agent}
        for path in listed:
            if blobs[path] is None or blobs[path] not in held:
                yield from self._from_file(path)

    def _from_file(self, path: str) -> Iterator[_Offer]:
        try:
            read_user_file(path, _MAX_SIZE_BYTES)  # paramiko would wait for what a pipe brings
            key = paramiko.PKey.from_path(path)
        except FileNotFoundError:
            # The defaults of OpenSSH are listed whether they exist or not.
            if Path(path).parent != Path("~/.ssh").expanduser():
                self._tried.append(f"{path}: no such file")
            return
        except OSError as error:
            self._tried.append(f"{path}: {reason_of(error)}")
            return
        except TypeError:  # what the parser raises for a key that needs a passphrase
            self._tried.append(
                f"{path}: needs its passphrase; `ssh-add {shlex.quote(path)}` gives it to the agent"
            )
            return
        except Exception as error:
            # Whatever the parsers of several key formats raise: a file that is no key of ours.
            self._tried.append(f"{path}: is no key that can be used ({type(error).__name__})")
            return
        for certificate in self._config.certificate_files:
            with contextlib.suppress(OSError, ValueError, paramiko.SSHException):
                read_user_file(certificate, _MAX_SIZE_BYTES)
                key.load_certificate(certificate)
        if key.public_blob is not None:
            yield _Offer(key, f"{path} with its certificate")
            key.public_blob = None
        yield _Offer(key, path)

    def _failed(self, what: str) -> HostError:
        config = self._config
        where = f"{config.user}@{config.key_name}"
        notes = [*self._tried, *([what] if what else []), *config.notes]
        return HostError(
            f"the host does not let `{where}` in",
            host=config.host,
            code="auth",
            notes=notes if self._tried else ["there was no key to offer", *notes],
            hints=("check the user and the key: sgldbg uses ssh keys and the ssh agent only",),
            data={"tried": list(self._tried)},
        )


class _Agent:
    """The keys of an ssh agent, through one connection that stays until all keys were tried."""

    def __init__(self) -> None:
        self._agent: Any = None

    def keys(self, path: str | None) -> tuple[paramiko.PKey, ...]:
        if path is None:
            return ()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        agent: Any = paramiko.agent.AgentSSH()
        try:
            connection.settimeout(5.0)
            connection.connect(path)
            # paramiko's public class only knows $SSH_AUTH_SOCK, not `IdentityAgent`.
            agent._connect(connection)
        except (OSError, paramiko.SSHException):
            connection.close()  # no agent there; the key files are left
            return ()
        # A hardware key waits for a touch; the time for all of it is the transport's.
        connection.settimeout(None)
        self._agent = agent
        return tuple(agent.get_keys())

    def close(self) -> None:
        if self._agent is not None:
            self._agent._close()
            self._agent = None


def _read_public(path: str) -> bytes | None:
    """The public half of a key file, where it stands beside it."""
    try:
        public = path if path.endswith(".pub") else f"{path}.pub"
        words = read_user_file(public, _MAX_SIZE_BYTES).decode("ascii").split()
        return base64.b64decode(words[1], validate=True)
    except (OSError, ValueError, IndexError):
        return None


def _words(error: paramiko.BadAuthenticationType) -> str:
    return ", ".join(error.allowed_types)
