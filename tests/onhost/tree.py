"""One way to say what a directory tree is, so that before and after can be compared."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

Tree = dict[str, dict[str, Any]]


def snapshot(root: Path | str) -> Tree:
    """Everything a revert must give back, by path below `root`; only ctime and atime are exempt."""
    root = os.fspath(root)
    found = {".": describe(root)}
    for folder, names, files in os.walk(root):
        for name in names + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = describe(path)
    return found


def describe(path: str) -> dict[str, Any]:
    """Bytes, inode, time, mode, owner, links and extended attributes of one entry."""
    seen = os.lstat(path)
    entry: dict[str, Any] = {
        "mode": oct(seen.st_mode),
        "owner": (seen.st_uid, seen.st_gid),
        "inode": seen.st_ino,
        "mtime_ns": seen.st_mtime_ns,
        "nlink": seen.st_nlink,
    }
    if stat.S_ISLNK(seen.st_mode):
        return {**entry, "target": os.readlink(path)}
    entry["xattrs"] = {n: os.getxattr(path, n) for n in os.listxattr(path)}
    if stat.S_ISREG(seen.st_mode):
        entry["sha256"] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return entry


def differences(before: Tree, after: Tree) -> list[str]:
    """One line per difference; empty where the trees are the same."""
    lines = [f"gone: {name}" for name in sorted(before.keys() - after.keys())]
    lines += [f"new: {name}" for name in sorted(after.keys() - before.keys())]
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        lines += [
            f"{name}: {key} was {old.get(key)}, is {new.get(key)}"
            for key in sorted(old.keys() | new.keys())
            if old.get(key) != new.get(key)
        ]
    return lines
