"""A throw-away OpenSSH server on loopback that plays one or several hosts."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.model.inventory import Host

_WAIT_S = 30.0


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Write a new key pair at `path` and `path.pub`."""
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


def find_sshd() -> str:
    """Where the server's program is; it insists on being started by its whole path."""
    path = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if path is None:
        raise RuntimeError("these tests need OpenSSH's server: apt-get install openssh-server")
    return path


@dataclass
class _Played:
    address: str
    listener: socket.socket
    home: Path
    config: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    drop: int = 0
    accepted: int = 0

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port


class Sshd:
    """Hosts on 127.0.0.2, 127.0.0.3, ..., each with a HOME of its own and a port of its own.

    Connections are accepted here and handed to `sshd -i`, one process each: no port is ever
    chosen twice, and a test can drop, count and kill the connections of one host.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str] = ("h0",),
        noise: str = "",
        options: Sequence[str] = (),
        key_types: Sequence[str] = ("ed25519",),
    ) -> None:
        """`noise` is what every login shell prints, `options` are lines of sshd_config."""
        self.folder = folder
        self.user = getpass.getuser()
        self.known_hosts = folder / "known_hosts"
        self.log = folder / "sshd.log"
        self._sshd = find_sshd()
        self._noise = noise
        self._options = tuple(options)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stopping = False
        folder.mkdir(parents=True, exist_ok=True)
        self.user_key = make_key(folder / "user_key")
        self.host_keys = [make_key(folder / f"host_{kind}", kind) for kind in key_types]
        self._hosts = {
            name: self._make_host(name, f"127.0.0.{number}") for number, name in enumerate(names, 2)
        }
        self.known_hosts.write_text("".join(self.known_line(name) for name in names))

    def __enter__(self) -> Sshd:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to accept connections."""
        if os.getuid() == 0:
            # Where sshd shuts its unprivileged half in; Debian makes it when the service starts.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for name, played in self._hosts.items():
            thread = threading.Thread(
                target=self._accept, args=(played,), name=f"sshd-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End every connection and what `sshd` runs for it."""
        self._stopping = True
        for played in self._hosts.values():
            with contextlib.suppress(OSError):
                played.listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_WAIT_S)
        for name, played in self._hosts.items():
            played.listener.close()
            self.kill_connections(name)

    def host(self, name: str, **changes: Any) -> Host:
        """The host as an inventory describes it; nothing of the user's own ssh files is used."""
        played = self._hosts[name]
        options = {
            "ConfigFile": "none",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            **changes.pop("ssh_options", {}),
        }
        given: dict[str, Any] = {
            "address": played.address,
            "user": self.user,
            "port": played.port,
            "identity_file": str(self.user_key),
            **changes,
        }
        return Host(name=name, ssh_options=options, **given)

    def home(self, name: str) -> Path:
        """The HOME that logins to this host see."""
        return self._hosts[name].home

    def state_dir(self, name: str) -> Path:
        """Where the agent of this host keeps its state."""
        return self.home(name) / ".local" / "state" / "sgldbg"

    def known_line(self, name: str) -> str:
        """The lines of known_hosts that vouch for this host."""
        played = self._hosts[name]
        keys = [f"{path}.pub" for path in self.host_keys]
        return "".join(
            f"[{played.address}]:{played.port} {' '.join(Path(key).read_text().split()[:2])}\n"
            for key in keys
        )

    def drop_next(self, name: str, count: int) -> None:
        """Close the next connections before the server says who it is, as MaxStartups does."""
        with self._lock:
            self._hosts[name].drop = count

    def accepted(self, name: str) -> int:
        """How many connections this host has taken, the dropped ones included."""
        with self._lock:
            return self._hosts[name].accepted

    def kill_connections(self, name: str, how: int = signal.SIGKILL) -> None:
        """Signal every process that serves a connection; SIGKILL also waits for their ends."""
        with self._lock:
            processes = list(self._hosts[name].processes)
        for process in processes:
            # Each was started in a process group of its own; sshd's halves are in it, the shell
            # that it runs for a login is not.
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, how)
        if how == signal.SIGKILL:
            for process in processes:
                process.wait(_WAIT_S)

    def wait_closed(self, name: str) -> None:
        """Wait until every connection to this host has ended by itself."""
        until = time.monotonic() + _WAIT_S
        with self._lock:
            processes = list(self._hosts[name].processes)
        for process in processes:
            process.wait(max(0.1, until - time.monotonic()))

    def _make_host(self, name: str, address: str) -> _Played:
        listener = socket.create_server((address, 0), backlog=128)
        home = self.folder / name / "home"
        home.mkdir(parents=True)
        if self._noise:
            (home / ".bashrc").write_text(f"cat <<'END'\n{self._noise}\nEND\n")
        config = self.folder / name / "sshd_config"
        lines = [
            *(f"HostKey {path}" for path in self.host_keys),
            f"AuthorizedKeysFile {self.user_key}.pub",
            *self._options,
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            "UseDNS no",
            "PidFile none",
            "LogLevel VERBOSE",
            f"SetEnv HOME={home}",
        ]
        config.write_text("\n".join(lines) + "\n")
        return _Played(address, listener, home, config)

    def _accept(self, played: _Played) -> None:
        while not self._stopping:
            try:
                connection, _ = played.listener.accept()
            except OSError:
                return
            with connection, self._lock:
                played.accepted += 1
                if played.drop > 0:
                    played.drop -= 1
                    continue
                if not self._stopping:
                    played.processes.append(self._serve(played, connection))

    def _serve(self, played: _Played, connection: socket.socket) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [self._sshd, "-i", "-e", "-f", str(played.config)],
                stdin=connection.fileno(),
                stdout=connection.fileno(),
                stderr=log.fileno(),
                process_group=0,
            )
