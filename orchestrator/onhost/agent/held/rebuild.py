"""A session's directory made, and made again where it was lost with all that is in it."""

from __future__ import annotations

import os
from typing import Mapping

from . import lease
from .journal import sync_dir
from .state import JOURNAL


def make_dirs(directory: str) -> None:
    """Make a session's directory and those above it, for ourselves alone, durable."""
    parent = os.path.dirname(directory)
    sessions = os.path.dirname(parent)
    state_dir = os.path.dirname(sessions)
    for path in (os.path.dirname(state_dir), state_dir, sessions):
        os.makedirs(path, 0o700, exist_ok=True)
    os.makedirs(directory, 0o700, exist_ok=True)
    sync_dir(parent)
    sync_dir(sessions)


def give_back(directory: str, contents: Mapping[str, bytes]) -> bool:
    """Write those files of a session that are not there; whether its journal was one of them.

    The journal comes last: where it is, a session is. Of two that do this at once one does it.
    """
    make_dirs(directory)
    with lease.exclusive(directory) as held:
        if not held:
            raise OSError("`%s` is held by a process that does not move" % directory)
        missing = [name for name in contents if not os.path.exists(os.path.join(directory, name))]
        for name in sorted(missing, key=lambda name: name == JOURNAL):
            _write(os.path.join(directory, name), contents[name])
        sync_dir(directory)
    return JOURNAL in missing


def _write(path: str, data: bytes) -> None:
    draft = path + ".draft"
    with open(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb"
    ) as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.rename(draft, path)
