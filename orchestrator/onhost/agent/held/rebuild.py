"""A session's directory made, and made again where it was lost with all that is in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import Callable, Mapping

from ..refusal import Refusal
from . import lease
from .journal import sync_dir
from .state import JOURNAL, was_ended

_REFUGE = "sgldbg-lost-"


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


def give_back(
    directory: str, contents: Mapping[str, bytes], is_wanted: Callable[[], bool] = lambda: True
) -> bool:
    """Write those files of a session that are not there; whether its journal was one of them.

    The journal comes last: where it is, a session is. Of two that do this at once one does it.
    `is_wanted` is asked when nobody else can be at it any more; `Refusal` (`missing`) where it
    says no, as for one that was ended meanwhile.
    """
    make_dirs(directory)
    with lease.exclusive(directory) as held:
        if not held:
            raise OSError("`%s` is held by a process that does not move" % directory)
        if not os.path.exists(os.path.join(directory, JOURNAL)) and not is_wanted():
            _unmake(directory)
            message = "the session is not there any more"
            raise Refusal("missing", message, ended=was_ended(directory))
        missing = [name for name in contents if not os.path.exists(os.path.join(directory, name))]
        for name in sorted(missing, key=lambda name: name == JOURNAL):
            _write(os.path.join(directory, name), contents[name])
        sync_dir(directory)
    return JOURNAL in missing


def make_refuge() -> str:
    """A state directory for a session whose own one takes nothing any more; its lock names it."""
    return tempfile.mkdtemp(prefix=_REFUGE)


def is_refuge(state_dir: str) -> bool:
    """Whether `make_refuge` has made this directory, for one session."""
    return os.path.basename(state_dir).startswith(_REFUGE)


def leave_refuge(state_dir: str, ended: str) -> None:
    """Remove such a directory with the journal that was filed away as `ended`.

    What a revert by force has kept of somebody's files there stays, and the directory with it.
    """
    shutil.rmtree(ended, ignore_errors=True)
    for name in ("ended", "sessions"):
        for folder, _, _ in os.walk(os.path.join(state_dir, name), topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    with contextlib.suppress(OSError):
        os.rmdir(state_dir)


def _unmake(directory: str) -> None:
    """Take away the directory that was made for nothing, unless there is something in it."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(directory, "lease.lock"))
        os.rmdir(directory)
        os.rmdir(os.path.dirname(directory))


def _write(path: str, data: bytes) -> None:
    draft = path + ".draft"
    with open(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb"
    ) as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.rename(draft, path)
