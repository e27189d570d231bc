"""Reading an install's files: their bytes, what is known of them, and whether they are pristine."""

from __future__ import annotations

import hashlib
import os
import stat as stat_module
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..refusal import Refusal
from . import origin, volume

# The largest source file of SGLang has 0.5 MB; a whole reply carries at most 64 MiB.
_FILE_LIMIT = 16 << 20
_TRIES = 5


def observe(
    root: str, package: str, files: Sequence[str], dist_info: Optional[str]
) -> Tuple[List[Dict[str, Any]], bytes]:
    """One entry per file and the bytes of those that exist, one after another.

    Codes `outside`, `unsupported` (no regular file), `too-large`, `unreadable`.
    """
    recorded = origin.read_record(dist_info) if dist_info else {}
    entries: List[Dict[str, Any]] = []
    pieces: List[bytes] = []
    for name in files:
        path = resolve(root, package, name)
        data, stat = _read_stable(path, name)
        if stat is None or data is None:
            why = "RECORD lists it" if name in recorded else ""
            nothing = {**_NOTHING, "compiled": _find_compiled(path)}
            entries.append({"file": name, "path": path, "exists": False, **nothing, "why": why})
            continue
        pristine, why = _judge(path, name, data, recorded)
        entries.append(
            {
                "file": name,
                "path": path,
                "exists": True,
                "sha256": hashlib.sha256(data).hexdigest(),
                "size": len(data),
                "mode": stat_module.S_IMODE(stat.st_mode),
                "uid": stat.st_uid,
                "gid": stat.st_gid,
                "nlink": stat.st_nlink,
                "inode": stat.st_ino,
                "place": volume.name_place(os.path.dirname(path)),
                "mtime_ns": stat.st_mtime_ns,
                "pristine": pristine,
                "compiled": None,
                "why": why,
            }
        )
        pieces.append(data)
    return entries, b"".join(pieces)


def resolve(root: str, package: str, name: str) -> str:
    """The real path of a file of an install; raises `Refusal` (`outside`) where it leaves it.

    Inside is what lies below the root or below the package, as imported or with all links
    followed: the package of a strict editable install is a tree of links into a checkout.
    """
    parts = name.split("/")
    if name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise Refusal("outside", "`%s` is no path inside an install" % name, file=name)
    path = os.path.realpath(os.path.join(root, *parts))
    entry = os.path.realpath(os.path.join(root, package, "__init__.py"))
    allowed = [os.path.realpath(root), os.path.realpath(os.path.join(root, package))]
    allowed.append(os.path.dirname(entry))
    if not any(path.startswith(folder.rstrip("/") + "/") for folder in allowed):
        message = "`%s` leads to `%s`, outside the install `%s`" % (name, path, root)
        raise Refusal("outside", message, file=name, path=path, root=root)
    return path


_NOTHING: Mapping[str, Any] = {
    "sha256": None,
    "size": None,
    "mode": None,
    "uid": None,
    "gid": None,
    "nlink": None,
    "inode": None,
    "place": None,
    "mtime_ns": None,
    "pristine": None,
}


def _find_compiled(path: str) -> Optional[str]:
    """What an import finds in the place of a source that is not there, if it finds anything."""
    folder, name = os.path.split(path)
    stem = name[: -len(".py")] + "." if name.endswith(".py") else None
    if stem is None or not os.path.isdir(folder):
        return None
    found = [one for one in os.listdir(folder) if one.startswith(stem)]
    return min((one for one in found if one.endswith((".pyc", ".so"))), default=None)


def _read_stable(path: str, name: str) -> Tuple[Optional[bytes], Optional[os.stat_result]]:
    """Bytes and stat that belong together: read again while somebody else is writing."""
    for _ in range(_TRIES):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None, None
        except OSError as error:
            raise Refusal(
                "unreadable", "cannot read `%s`: %s" % (path, error.strerror), file=name
            ) from None
        try:
            before = os.fstat(fd)
            if not stat_module.S_ISREG(before.st_mode):
                raise Refusal("unsupported", "`%s` is no regular file" % path, file=name)
            if before.st_size > _FILE_LIMIT:
                message = "`%s` has %d bytes, the limit is %d" % (path, before.st_size, _FILE_LIMIT)
                raise Refusal("too-large", message, file=name)
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(_FILE_LIMIT + 1)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        if before.st_mtime_ns == after.st_mtime_ns and len(data) == after.st_size:
            return data, after
    raise Refusal("unreadable", "`%s` changes while it is read" % path, file=name)


def _judge(
    path: str, name: str, data: bytes, recorded: Mapping[str, str]
) -> Tuple[Optional[bool], str]:
    """Whether a file is as its install or its checkout says, and how that is known."""
    if name in recorded:
        if not recorded[name]:
            return None, "RECORD has no checksum of it"
        same = origin.matches_record(recorded[name], data)
        if same is None:
            return None, "RECORD has a checksum of a kind that is unknown here"
        return same, "equals RECORD" if same else "differs from RECORD"
    return origin.compare_with_checkout(path, data)
