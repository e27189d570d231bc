"""The lock beside an install: one session at a time, visible to every user and every host."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from typing import List, NamedTuple, Optional

from ..space import naming
from . import untrusted
from .dirs import LOCK_NAME
from .holder import Holder, parse_holder
from .journal import sync_dir

_NO_LINK = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)


def find_paths(package_dir: str) -> List[str]:
    """Where the locks of this package stand.

    Two for an install that is a tree of links: sessions may come through the tree or through the
    sources behind it, and both must meet.
    """
    real = os.path.realpath(package_dir)
    behind = os.path.dirname(os.path.realpath(os.path.join(package_dir, "__init__.py")))
    folders = dict.fromkeys((real, behind) if os.path.isdir(behind) else (real,))
    return [os.path.join(folder, LOCK_NAME) for folder in sorted(folders)]


def temporary(path: str, holder: Holder) -> str:
    """The name under which a holder writes its lock before it is linked into place."""
    return "%s-%s-%s" % (path, holder["session"], holder["host"])


def take(path: str, holder: Holder) -> None:
    """Take the lock; `FileExistsError` where somebody, perhaps we ourselves, holds it."""
    draft = temporary(path, holder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    _write(draft, holder)
    try:
        _link(draft, path, holder)
    finally:
        os.unlink(draft)
    sync_dir(os.path.dirname(path))


def _link(draft: str, path: str, holder: Holder) -> None:
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _write(path, holder)  # a file system without links: O_EXCL decides


def _write(path: str, holder: Holder) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with naming(path), open(fd, "wb") as file:
        os.fchmod(fd, 0o644)  # every user must be able to read who it is
        file.write(json.dumps(holder, sort_keys=True).encode("ascii") + b"\n")
        file.flush()
        os.fsync(fd)


class Seen(NamedTuple):
    """A lock that stands: what it says, and whether that may be acted upon.

    The folder may be another user's, who can put any lock there: it only counts for who is told
    that the install is held, unless the file itself is ours or root's. `stamp` is another one
    whenever its holder gave a sign of life.
    """

    holder: Holder
    uid: int
    is_trusted: bool
    stamp: str = ""


def look(path: str) -> Optional[Seen]:
    """The lock as it stands, its holder empty where it cannot be read; `None` where none does."""
    try:
        found = untrusted.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return Seen({}, -1, False)
    return Seen(parse_holder(found.data), found.uid, found.is_trusted, found.stamp)


def read(path: str) -> Optional[Holder]:
    """Who holds the lock; an empty dict where that cannot be read, `None` where nobody does.

    To be shown, or compared with what one knows; `read_trusted` is for what is acted upon.
    """
    seen = look(path)
    return None if seen is None else seen.holder


def read_trusted(path: str) -> Holder:
    """Who holds the lock by the word of ourselves or root; empty where there is no such word."""
    seen = look(path)
    return seen.holder if seen is not None and seen.is_trusted else {}


def is_mine(found: Optional[Holder], holder: Holder) -> bool:
    """Whether a lock that was read is that of this session on this host."""
    names = ("session", "host", "hostname", "since")
    return found is not None and all(found.get(name) == holder[name] for name in names)


def is_handed_over(found: Holder, holder: Holder) -> bool:
    """Whether a lock that was read is of this session, but another machine has it by now."""
    same = all(found.get(name) == holder[name] for name in ("session", "host", "since"))
    return same and found.get("taken_from") is not None and not is_mine(found, holder)


def update(path: str, holder: Holder) -> None:
    """Write our own lock anew, as when its time changes; leaves anybody else's alone."""
    if is_mine(read(path), holder):
        _replace(path, holder)


def beat(path: str, holder: Holder) -> None:
    """Let our own lock show that its holder lives; another machine has no other way to see it.

    Its time is all that changes, which takes no room on a disk and no line in a journal.
    """
    if is_mine(read(path), holder):
        os.utime(path)


def hand_over(path: str, seen: Seen, holder: Holder) -> bool:
    """Put another holder into a lock that still is what was seen; false where it is not.

    Of several that try one succeeds, on whatever host: the lock of the file that is replaced is
    theirs in turn. `OSError` where the file system has no such locks.
    """
    fd = untrusted.open_to_write(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if look(path) != seen:
            return False
        _replace(path, holder)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def _replace(path: str, holder: Holder) -> None:
    draft = temporary(path, holder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    try:
        _write(draft, holder)
        os.rename(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    sync_dir(os.path.dirname(path))


def release(path: str, holder: Holder) -> bool:
    """Remove our own lock and draft; false where the lock is somebody else's."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary(path, holder))
    found = read(path)
    if found is None:
        return True
    if not is_mine(found, holder):
        return False
    os.unlink(path)
    sync_dir(os.path.dirname(path))
    return True
