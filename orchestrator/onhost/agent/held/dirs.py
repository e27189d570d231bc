"""How a directory was, and its modification time given back once it is that way again."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any, Dict, Iterable, Optional, Set

LOCK_NAME = ".sgldbg-lock"
# Locks and leases go last, so directories are compared as if they were gone already.
_PREFIX = ".sgldbg-"
Recorded = Dict[str, Any]


def record(path: str, targets: Iterable[str] = ()) -> Optional[Recorded]:
    """The directory's time and a checksum of its names and inodes; `None` where there is none.

    `targets` are files that will be replaced: they count by name only, since one that can only be
    kept as a copy comes back under another inode.
    """
    try:
        seen = os.stat(path)
        return {"mtime_ns": seen.st_mtime_ns, "listing": _listing(path, set(targets))}
    except FileNotFoundError:
        return None


def _listing(path: str, targets: Set[str]) -> str:
    digest = hashlib.sha256()
    by_name = _is_overlay(path)
    with os.scandir(path) as entries:
        lines = []
        for entry in entries:
            if not entry.name.startswith(_PREFIX):
                inode = 0 if by_name or entry.path in targets else entry.inode()
                lines.append(os.fsencode(entry.name) + b"\0%d\n" % inode)
    for line in sorted(lines):
        digest.update(line)
    return digest.hexdigest()


def _is_overlay(path: str) -> bool:
    """Whether what comes from an image gets another inode as soon as it is renamed there."""
    device = os.stat(path).st_dev
    mark = (" %d:%d " % (os.major(device), os.minor(device))).encode()
    with open("/proc/self/mountinfo", "rb") as file:
        return any(mark in line and b" - overlay " in line for line in file)


def restore(path: str, recorded: Recorded, targets: Iterable[str] = ()) -> bool:
    """Give the time back where the directory holds what it held; false where it does not."""
    now = record(path, targets)
    if now is None or now["listing"] != recorded["listing"]:
        return False
    if now["mtime_ns"] != recorded["mtime_ns"]:
        os.utime(path, ns=(os.stat(path).st_atime_ns, recorded["mtime_ns"]))
    return True


def remove_if_empty(path: str) -> None:
    """Remove a directory that was not there before, unless somebody else uses it now."""
    with contextlib.suppress(OSError):
        os.rmdir(path)
