"""What the user's ssh configuration says of a host, asked of `ssh -G` itself."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host

# `Match exec` may run commands of the user's; more than this is a hang.
_RESOLVE_S = 10.0
# Not an option of OpenSSH but its `-F`: the file to read in place of the user's and the system's
# configuration, or `none`.
CONFIG_FILE = "configfile"
_DEFAULT_IDENTITIES = ("id_rsa", "id_ecdsa", "id_ed25519")


@dataclass(frozen=True, slots=True)
class Asked:
    """A host as the inventory, or a jump option, names it; `None` is up to the configuration."""

    host: str
    target: str
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    options: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class SshConfig:
    """The resolved options that this transport honours; paths and tokens are expanded."""

    host: str
    target: str
    hostname: str
    user: str
    port: int
    identity_files: tuple[str, ...]
    certificate_files: tuple[str, ...]
    identities_only: bool
    identity_agent: str | None
    known_hosts: tuple[str, ...]
    global_known_hosts: tuple[str, ...]
    hash_known_hosts: bool
    host_key_alias: str | None
    accept_new: bool
    proxy_jump: tuple[str, ...]
    proxy_command: str | None
    connect_timeout_s: float | None
    address_family: str
    config_file: str | None
    revoked_host_keys: str | None
    notes: tuple[str, ...] = ()

    @property
    def key_name(self) -> str:
        """The name under which the host's key is looked up: an alias has no port."""
        if self.host_key_alias:
            return self.host_key_alias
        return self.hostname if self.port == 22 else f"[{self.hostname}]:{self.port}"


def make_asked(host: Host) -> Asked:
    """What an entry of the inventory asks for."""
    return Asked(
        host=host.name,
        target=host.address or host.name,
        user=host.user,
        port=host.port,
        identity_file=host.identity_file,
        options=host.ssh_options,
    )


def read_config(asked: Asked) -> SshConfig:
    """Resolve by the `ssh` binary where there is one, else from the inventory alone.

    No reader of our own is used for configuration files: measured, others applied `Match` blocks
    that were not meant and missed `Include`. Raises `HostError` (`unreachable`).
    """
    if asked.target.startswith("-"):
        raise HostError(
            f"`{asked.target}` is no address: it looks like an option",
            host=asked.host,
            code="unreachable",
        )
    binary = shutil.which("ssh")
    if binary is None:
        notes = ("there is no `ssh` binary here, so no ssh configuration file was read",)
        return make_config(asked, _without_binary(asked), notes)
    return make_config(asked, parse_resolved(_run(binary, asked)))


def parse_resolved(text: str) -> dict[str, list[str]]:
    """The options that `ssh -G` printed: name in lower case -> values in order."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        values.setdefault(name.lower(), []).append(value.strip())
    return values


def make_config(
    asked: Asked, values: Mapping[str, list[str]], notes: tuple[str, ...] = ()
) -> SshConfig:
    """Turn resolved options into what the transport needs."""

    def one(name: str) -> str | None:
        found = values.get(name, [])
        return found[0] if found and found[0].lower() not in ("none", "") else None

    hostname = one("hostname") or asked.target
    user = asked.user or one("user") or getpass.getuser()
    port = asked.port or int(one("port") or 22)
    tokens = _tokens(asked, hostname, user, port)

    def paths(texts: list[str]) -> tuple[str, ...]:
        kept = [text for text in texts if text.lower() != "none"]
        return tuple(_home(expand_tokens(text, tokens)) for text in kept)

    own = {name.lower(): value for name, value in (asked.options or {}).items()}
    revoked = paths(values.get("revokedhostkeys", []))
    jump, command, timeout = one("proxyjump"), one("proxycommand"), one("connecttimeout")
    return SshConfig(
        host=asked.host,
        target=asked.target,
        hostname=hostname,
        user=user,
        port=port,
        identity_files=paths(values.get("identityfile", [])),
        certificate_files=paths(values.get("certificatefile", [])),
        identities_only=one("identitiesonly") in ("yes", "true"),
        identity_agent=_agent_socket(values.get("identityagent", ["SSH_AUTH_SOCK"])[0], tokens),
        known_hosts=paths(_split(values.get("userknownhostsfile", []))),
        global_known_hosts=paths(_split(values.get("globalknownhostsfile", []))),
        hash_known_hosts=one("hashknownhosts") in ("yes", "true"),
        host_key_alias=one("hostkeyalias"),
        # Never by the user's configuration: what adds keys by itself must be said where the fleet
        # is described.
        accept_new=own.get("stricthostkeychecking", "").lower() == "accept-new",
        proxy_jump=tuple(hop.strip() for hop in jump.split(",")) if jump else (),
        proxy_command=expand_tokens(command, tokens) if command and not jump else None,
        connect_timeout_s=float(timeout) if timeout and timeout.isdigit() else None,
        address_family=one("addressfamily") or "any",
        config_file=own.get(CONFIG_FILE),
        revoked_host_keys=revoked[0] if revoked else None,
        notes=notes,
    )


def parse_hop(text: str, base: SshConfig) -> Asked:
    """One hop of a `ProxyJump`: `[user@]host[:port]`, or the same behind `ssh://`.

    Like OpenSSH, a hop is resolved on its own and shares only the configuration file.
    """
    match = re.fullmatch(r"(?:ssh://)?(?:(.+)@)?(\[[^\]]+\]|[^:]+)(?::([0-9]+))?/?", text)
    if match is None:
        raise HostError(f"`ProxyJump {text}` names no host", host=base.host, code="unreachable")
    user, target, port = match.groups()
    options = {"ConfigFile": base.config_file} if base.config_file else None
    return Asked(base.host, target.strip("[]"), user, int(port) if port else None, options=options)


def expand_tokens(text: str, tokens: Mapping[str, str]) -> str:
    """Replace OpenSSH's `%` tokens; unknown ones stay as they are."""
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)


def _tokens(asked: Asked, hostname: str, user: str, port: int) -> dict[str, str]:
    here = socket.gethostname()
    return {
        "%": "%",
        "d": _home("~"),
        "h": hostname,
        "i": str(os.getuid()),
        "k": hostname,
        "L": here.partition(".")[0],
        "l": here,
        "n": asked.target,
        "p": str(port),
        "r": user,
        "u": getpass.getuser(),
    }


def _agent_socket(text: str, tokens: Mapping[str, str]) -> str | None:
    if text.lower() == "none":
        return None
    if text == "SSH_AUTH_SOCK" or text.startswith("$"):
        return os.environ.get(text.lstrip("$").strip("{}")) or None
    return _home(expand_tokens(text, tokens))


def _split(texts: list[str]) -> list[str]:
    return [word for text in texts for word in text.split()]


def _run(binary: str, asked: Asked) -> str:
    command = [binary, "-G"]
    for name, value in (asked.options or {}).items():
        if name.lower() == CONFIG_FILE:
            command += ["-F", _home(value)]
        else:
            command += ["-o", f"{name}={value}"]
    if asked.user:
        command += ["-l", asked.user]
    if asked.port:
        command += ["-p", str(asked.port)]
    if asked.identity_file:
        # Not by `-i`, which forgets a file that is missing: the user is to be told.
        command += ["-o", f'IdentityFile="{_home(asked.identity_file)}"']
    try:
        done = subprocess.run(
            [*command, "--", asked.target],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_RESOLVE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(
            f"`ssh -G {asked.target}` took more than {_RESOLVE_S:g} s",
            host=asked.host,
            code="unreachable",
        ) from error
    if done.returncode != 0:
        raise HostError(
            f"the ssh configuration of `{asked.target}` is refused by `ssh -G`",
            host=asked.host,
            code="unreachable",
            notes=[line for line in _text(done.stderr).splitlines() if line.strip()],
        )
    return _text(done.stdout)


def _without_binary(asked: Asked) -> dict[str, list[str]]:
    values = {
        "identityfile": [f"~/.ssh/{name}" for name in _DEFAULT_IDENTITIES],
        "userknownhostsfile": ["~/.ssh/known_hosts ~/.ssh/known_hosts2"],
        "globalknownhostsfile": ["/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"],
    }
    for name, value in (asked.options or {}).items():
        values[name.lower()] = [value]
    if asked.identity_file:
        values["identityfile"] = [asked.identity_file]
    return values


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _home(path: str) -> str:
    return str(Path(path).expanduser())
