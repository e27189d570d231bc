"""Our own judgement of host keys: strict, by OpenSSH's known_hosts files, tolerant in reading."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import os
import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.errors import HostError
from orchestrator.transport.config import SshConfig
from orchestrator.transport.revoked import MAX_SIZE_BYTES, find_revoked
from orchestrator.userfile import read_user_file, reason_of

_MARKERS = ("@revoked", "@cert-authority")
_COMPARE = (
    "on the host itself, this shows its keys to compare with:"
    " for k in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $k; done"
)


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One line of a known_hosts file that speaks of the host."""

    path: str
    line: int
    marker: str
    key_type: str
    blob: bytes
    without_port: bool = False

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.path}:{self.line}"

    def __str__(self) -> str:
        return f"{self.key_type} {fingerprint(self.blob)} ({self.place})"


@dataclass(frozen=True, slots=True)
class KnownHost:
    """What the files say of one host; `notes` tell of lines that could not be used."""

    keys: tuple[KnownKey, ...] = ()
    notes: tuple[str, ...] = ()

    def trusted(self) -> tuple[KnownKey, ...]:
        """The plain lines that are about this very port."""
        return tuple(key for key in self.keys if not key.marker and not key.without_port)

    def key_types(self) -> tuple[str, ...]:
        """The types of the keys that would be accepted, each once: to be asked for first."""
        return tuple(dict.fromkeys(key.key_type for key in self.keys if not key.marker))


def fingerprint(blob: bytes) -> str:
    """The key's fingerprint as OpenSSH prints it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii")
    return "SHA256:" + digest.rstrip("=")


def read_known_host(config: SshConfig) -> KnownHost:
    """Read the host's lines from the user's and the system's files; missing files say nothing.

    Like OpenSSH, where no line has the host's port, one without a port may vouch for it; if it
    does not, it says nothing, since it speaks of another server on that machine.
    """
    found = _read_all(config, config.key_name)
    if found.keys or config.host_key_alias or config.port == 22:
        return found
    plain = _read_all(config, config.hostname)
    return KnownHost(tuple(replace(key, without_port=True) for key in plain.keys), found.notes)


def parse_line(text: str, name: str, path: str, number: int) -> KnownKey | str | None:
    """One line: a key of the host called `name`, a note on why it cannot be read, or nothing."""
    words = text.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0) if words[0].startswith("@") else ""
    if marker and marker not in _MARKERS:
        return f"{path}:{number} was skipped: the marker `{marker}` is not known"
    if not words or not _matches(words[0], name):
        return None
    if len(words) < 3:
        return f"{path}:{number} was skipped: it has no key"
    try:
        blob = base64.b64decode(words[2], validate=True)
    except (binascii.Error, ValueError):
        return f"{path}:{number} was skipped: its key is not base64"
    return KnownKey(path, number, marker, words[1], blob)


def judge(config: SshConfig, known: KnownHost, key_type: str, blob: bytes) -> None:
    """Return if the host may be talked to; otherwise raise `HostError` that says what to do.

    The host was asked first for the types that are known of it: one of another type means that it
    has none of these any more.
    With `accept-new` an unknown key is added to the first of the user's files.
    """
    place = find_revoked(config, blob)
    if place is not None:
        raise _revoked(config, known, key_type, blob, place)
    for key in known.keys:
        if key.marker == "@revoked" and key.blob == blob:
            raise _revoked(config, known, key_type, blob, key.place)
    if any(key.blob == blob for key in known.keys if not key.marker):
        return
    trusted = known.trusted()
    if any(key.key_type == key_type for key in trusted):
        raise _changed(config, known, key_type, blob)
    if trusted:  # also with `accept-new`: the host is not new, and this may be somebody else
        raise _of_another_type(config, known, key_type, blob)
    if config.accept_new and config.known_hosts:
        try:
            add_key(config, key_type, blob)
            return
        except OSError as error:
            path = config.known_hosts[0]
            note = f"the key could not be added to {path}: {reason_of(error)}"
            known = replace(known, notes=(*known.notes, note))
    raise _unknown(config, known, key_type, blob)


def add_key(config: SshConfig, key_type: str, blob: bytes) -> None:
    """Append the key to the first of the user's known_hosts files, hashed where so configured."""
    path = Path(config.known_hosts[0])
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = _hash_name(config.key_name) if config.hash_known_hosts else config.key_name
    line = f"{name} {key_type} {base64.b64encode(blob).decode('ascii')}\n".encode()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.write(descriptor, line)  # one write: other threads append too
    finally:
        os.close(descriptor)


def _read_all(config: SshConfig, name: str) -> KnownHost:
    keys: list[KnownKey] = []
    notes: list[str] = []
    for path in (*config.known_hosts, *config.global_known_hosts):
        try:
            lines = read_user_file(path, MAX_SIZE_BYTES).decode("utf-8", "replace").split("\n")
        except FileNotFoundError:
            continue
        except OSError as error:
            notes.append(f"{path} cannot be read: {reason_of(error)}")
            continue
        for number, text in enumerate(lines, 1):
            result = parse_line(text, name, path, number)
            if isinstance(result, str):
                notes.append(result)
            elif result is not None:
                keys.append(result)
    notes += [
        f"{key.place} was skipped: certificates of hosts are not checked here"
        for key in keys
        if key.marker == "@cert-authority"
    ]
    return KnownHost(tuple(keys), tuple(notes))


def _matches(field: str, name: str) -> bool:
    if field.startswith("|"):
        parts = field.split("|")
        if len(parts) != 4 or parts[1] != "1":
            return False
        try:
            salt, digest = base64.b64decode(parts[2]), base64.b64decode(parts[3])
        except (binascii.Error, ValueError):
            return False
        return hmac.compare_digest(hmac.new(salt, name.encode(), "sha1").digest(), digest)
    matched = False
    for pattern in field.lower().split(","):
        wanted = pattern.removeprefix("!")
        # Brackets are plain characters in a host pattern; `fnmatch` would read a set in them.
        if fnmatch.fnmatchcase(name.lower(), re.sub(r"\[", "[[]", wanted)):
            if pattern != wanted:
                return False
            matched = True
    return matched


def _hash_name(name: str) -> str:
    salt = secrets.token_bytes(20)
    digest = hmac.new(salt, name.encode(), "sha1").digest()
    return "|1|" + "|".join(base64.b64encode(part).decode("ascii") for part in (salt, digest))


def _unknown(config: SshConfig, known: KnownHost, key_type: str, blob: bytes) -> HostError:
    return HostError(
        f"the host key of `{config.key_name}` is not known: {key_type} {fingerprint(blob)}",
        host=config.host,
        code="host-key-unknown",
        notes=[*_looked_in(config), *known.notes],
        hints=(_COMPARE, _how_to_add(config, key_type, blob)),
        data={"key_type": key_type, "fingerprint": fingerprint(blob)},
    )


def _how_to_add(config: SshConfig, key_type: str, blob: bytes) -> str:
    key = base64.b64encode(blob).decode("ascii")
    line = f"echo '{config.key_name} {key_type} {key}' >>"
    target = next(filter(_takes_lines, map(Path, config.known_hosts)), None)
    if target is None:  # directories, /dev/null, or none at all
        places = " or ".join(config.known_hosts)
        first = f"make {places} a file, or name one" if places else "name a file"
        return f"{first} with `UserKnownHostsFile`, then: {line} FILE"
    folder = shlex.quote(str(target.parent))
    first = "" if target.parent.is_dir() else f"mkdir -m 700 -p {folder} && "
    return f"this adds the key: {first}{line} {shlex.quote(str(target))}"


def _takes_lines(path: Path) -> bool:
    """Whether it is a file, or could become one."""
    return path.is_file() or not os.path.lexists(path)


def _of_another_type(config: SshConfig, known: KnownHost, key_type: str, blob: bytes) -> HostError:
    types = " and ".join(dict.fromkeys(key.key_type for key in known.trusted()))
    return HostError(
        f"the host key of `{config.key_name}` is known by {types} only, and {key_type} is offered:"
        f" {fingerprint(blob)}",
        host=config.host,
        code="host-key-unknown",
        notes=[
            *(f"known is {key}" for key in known.trusted()),
            f"the host was asked for {types} first, and does not offer that",
            *known.notes,
        ],
        hints=(_COMPARE, f"if it is the host's own, {_how_to_add(config, key_type, blob)}"),
        data={"key_type": key_type, "fingerprint": fingerprint(blob)},
    )


def _revoked(
    config: SshConfig, known: KnownHost, key_type: str, blob: bytes, place: str
) -> HostError:
    return HostError(
        f"the host key of `{config.key_name}` is revoked by {place}",
        host=config.host,
        code="host-key-changed",
        notes=[
            f"the host shows {key_type} {fingerprint(blob)}",
            "whoever revoked it holds that others have its private part, and can pass for the host",
            *known.notes,
        ],
        hints=(
            "give the host a new key, `ssh-keygen -A` once the old one is removed there, and"
            " make that one known",
        ),
        data={"key_type": key_type, "fingerprint": fingerprint(blob)},
    )


def _changed(config: SshConfig, known: KnownHost, key_type: str, blob: bytes) -> HostError:
    files = dict.fromkeys(key.path for key in known.trusted())
    removal = [f"ssh-keygen -R '{config.key_name}' -f {shlex.quote(path)}" for path in files]
    return HostError(
        f"the host key of `{config.key_name}` has changed",
        host=config.host,
        code="host-key-changed",
        notes=[
            f"the host shows {key_type} {fingerprint(blob)}",
            *(f"known is {key}" for key in known.trusted()),
            "either the host was installed anew, or somebody else answers in its place",
            *known.notes,
        ],
        hints=(
            _COMPARE,
            *(f"if the change is right, this forgets the old key: {line}" for line in removal),
        ),
        data={"key_type": key_type, "fingerprint": fingerprint(blob)},
    )


def _looked_in(config: SshConfig) -> list[str]:
    """The files that could have had the key; of those that are not there the first counts, where
    people keep theirs, and all of them where there is none.
    """
    paths: Sequence[str] = (*config.known_hosts, *config.global_known_hosts)
    there = [path for path in paths if Path(path).exists()]
    absent = [path for path in paths if path not in there and (not there or path == paths[0])]
    said = [f"there is no {' or '.join(absent)}"] if absent else []
    return said + ([f"looked in {', '.join(there)}"] if there else [])
