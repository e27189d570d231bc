"""The lock beside an install: one session at a time, visible to every user and every host."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from typing import Any, Dict, List, Optional

from .dirs import LOCK_NAME
from .journal import sync_dir

Holder = Dict[str, Any]
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
    with open(fd, "wb") as file:
        os.fchmod(fd, 0o644)  # every user must be able to read who it is
        file.write(json.dumps(holder, sort_keys=True).encode("ascii") + b"\n")
        file.flush()
        os.fsync(fd)


def read(path: str) -> Optional[Holder]:
    """Who holds the lock; an empty dict where that cannot be read, `None` where nobody does."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read().decode("ascii"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_mine(found: Optional[Holder], holder: Holder) -> bool:
    """Whether a lock that was read is that of this session on this host."""
    names = ("session", "host", "hostname", "state_dir", "since")
    return found is not None and all(found.get(name) == holder[name] for name in names)


def update(path: str, holder: Holder) -> None:
    """Write our own lock anew, as when its time changes; leaves anybody else's alone."""
    if not is_mine(read(path), holder):
        return
    draft = temporary(path, holder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    _write(draft, holder)
    os.rename(draft, path)
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
