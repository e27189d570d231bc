"""Hosts, groups, installs and servers, as one inventory file names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.model.source import Span


@dataclass(frozen=True, slots=True)
class Host:
    """A machine we reach. What is `None` comes from the user's ssh configuration.

    `transport` is `ssh` or `local` (an agent on this machine, over pipes).
    `ssh_options` are OpenSSH options by name (`UserKnownHostsFile`, `IdentityFile`, ...) that
    override the user's configuration for this host.
    """

    name: str
    address: str | None = None
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    enter: tuple[str, ...] = ()
    transport: str = "ssh"
    python: str | None = None
    state_dir: str | None = None
    ssh_options: Mapping[str, str] = field(default_factory=dict)
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Install:
    """One SGLang installation: the interpreter that imports it and the name of its package."""

    name: str
    python: str | None = None
    package: str = "sglang"
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """The server is started by this command line on each host.

    Words and values may hold `{rank}`, `{host}`, `{address}` and `{nodes}`; see `for_host` of
    `orchestrator.servers`.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class LaunchAdopt:
    """The server was started by somebody else; it is found, described, stopped and restored.

    `output` is the file that the restored server writes to where its own output cannot be given
    back (a pipe, a socket, a terminal).
    """

    output: str | None = None


@dataclass(frozen=True, slots=True)
class LaunchSystemd:
    """The server is a systemd unit."""

    unit: str


# What is filled in in the words of a command, once for each host.
PLACEHOLDERS = ("{rank}", "{nodes}", "{host}", "{address}")
# The word of a start command that a session's added arguments stand for.
ARGS = "{args}"


@dataclass(frozen=True, slots=True)
class LaunchPair:
    """The server is stopped and started by two commands of the user's.

    Words may hold the placeholders of `LaunchCommand`; the word `{args}` of `start` is the place
    of the arguments that a session adds.
    """

    stop: tuple[str, ...]
    start: tuple[str, ...]


Launch = LaunchCommand | LaunchAdopt | LaunchSystemd | LaunchPair


@dataclass(frozen=True, slots=True)
class Ready:
    """When a server counts as ready: `path` answers 200 and our process owns the port."""

    path: str = "/health"
    timeout_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running SGLang service on one host or, in node-rank order, on several.

    `url` is as seen from the first host; `install` names an entry of the inventory.
    """

    name: str
    install: str
    hosts: tuple[str, ...]
    launch: Launch
    url: str
    ready: Ready = Ready()
    stop_timeout_s: float = 30.0
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Inventory:
    """All of one inventory file; names are unique within each kind."""

    path: str
    hosts: Mapping[str, Host]
    groups: Mapping[str, tuple[str, ...]]
    installs: Mapping[str, Install]
    servers: Mapping[str, Server]
