"""Reads what a user calls a file, and is not held up by what is none."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NULL = os.makedev(1, 3)  # what the kernel's list of devices calls /dev/null


def read_user_file(path: str | Path, limit_bytes: int) -> bytes:
    """The bytes of a regular file, links followed; `OSError` with the reason in `strerror`.

    A pipe would be waited for without an end, and a device may have none: both are refused before
    anything is read. So is a file of more than `limit_bytes`. Only `/dev/null` stands for an empty
    file, as it does for ssh.
    """
    descriptor = _open(path)
    try:
        _require_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    with open(descriptor, "rb") as file:
        data = file.read(limit_bytes + 1)  # not by its size: files of /proc say 0
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {limit_bytes >> 20} MiB", str(path))
    return data


def is_full(error: BaseException) -> bool:
    """Whether a disk or a quota has no room: no fault of a name, nor of ours."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def reason_of(error: OSError) -> str:
    """The system's own words for the middle of a sentence: they begin with a small letter."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def _open(path: str | Path) -> int:
    try:
        # A pipe that nobody writes into blocks the opening itself; no terminal becomes ours by it.
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket cannot be opened at all
            _require_regular(Path(path).stat(), path)
        raise


def _require_regular(found: os.stat_result, path: str | Path) -> None:
    mode = found.st_mode
    if stat.S_ISCHR(mode) and found.st_rdev == _NULL:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
