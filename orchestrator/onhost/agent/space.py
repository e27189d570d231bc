"""Which file a full disk did not take, and on which file system that was."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Dict, Iterator, Sequence

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
# A program that cannot write dies with little more than nothing free: others go on writing.
_FULL_BYTES = 65536


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """What fails says of which file: the system names only what it was to open by its full name."""
    try:
        yield
    except OSError as error:
        if not isinstance(error.filename, str) or not os.path.isabs(error.filename):
            error.filename = path
        raise


def tell_place(error: OSError) -> str:
    """Where there was no room, for the end of a message; empty for any other error."""
    path = error.filename
    if error.errno not in NO_SPACE or not isinstance(path, str) or not os.path.isabs(path):
        return ""
    folder = os.path.dirname(path)
    return " (folder `%s`, file system `%s`)" % (folder, find_mount(folder))


def find_mount(path: str) -> str:
    """The mount point of the file system that holds this path, or would hold it."""
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def find_full(paths: Sequence[str]) -> Dict[str, str]:
    """Those of these files for which there is no more room, with the mount point that is full."""
    found: Dict[str, str] = {}
    for path in paths:
        mount = find_mount(path)
        with contextlib.suppress(OSError):
            seen = os.statvfs(mount)
            if seen.f_bavail * seen.f_frsize < _FULL_BYTES:
                found[path] = mount
    return found
