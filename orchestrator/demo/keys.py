"""Throw-away ed25519 keys and the two files that an SSH client wants of them."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


def make_private_key() -> str:
    """A new private key in OpenSSH's own format; paramiko can read ed25519 but not make it."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


def parse_private_key(text: str) -> paramiko.Ed25519Key:
    """The key that `make_private_key` wrote."""
    return paramiko.Ed25519Key(file_obj=io.StringIO(text))


def write_private_key(path: Path, text: str) -> None:
    """Readable by its owner only, or `ssh` will not use it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)


def known_hosts_text(keys: Mapping[tuple[str, int], paramiko.PKey]) -> str:
    """The lines by which a client knows the server at each (address, port)."""
    return "".join(
        f"[{address}]:{port} {key.get_name()} {key.get_base64()}\n"
        for (address, port), key in keys.items()
    )
