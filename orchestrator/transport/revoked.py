"""The keys that the user's `RevokedHostKeys` file forbids, whatever known_hosts says."""

from __future__ import annotations

import base64
import binascii

from orchestrator.errors import HostError
from orchestrator.transport.config import SshConfig
from orchestrator.userfile import read_user_file, reason_of

# How OpenSSH's binary key revocation lists begin.
_KRL = b"SSHKRL\n\x00"
MAX_SIZE_BYTES = 64 << 20  # some 200,000 keys


def find_revoked(config: SshConfig, blob: bytes) -> str | None:
    """Where the file lists this key, if it does.

    Like OpenSSH, no key is good while the list cannot be read: raises `HostError`. Only lists of
    public keys are read, no binary key revocation lists.
    """
    path = config.revoked_host_keys
    if path is None:
        return None
    try:
        data = read_user_file(path, MAX_SIZE_BYTES)
    except OSError as error:
        raise _unreadable(config, path, reason_of(error)) from error
    if data.startswith(_KRL):
        raise _unreadable(config, path, "it is a binary key revocation list")
    found = None
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            listed = base64.b64decode(words[1], validate=True)
        except (IndexError, binascii.Error, ValueError):
            raise _unreadable(config, path, f"line {number} is no public key") from None
        if listed == blob:
            found = found or f"{path}:{number}"
    return found


def _unreadable(config: SshConfig, path: str, why: str) -> HostError:
    return HostError(
        f"`RevokedHostKeys {path}` cannot be read, so no host key is trusted: {why}",
        host=config.host,
        code="host-key-unknown",
        hints=("a list of public keys is read, one a line as in `.pub` files",),
    )
