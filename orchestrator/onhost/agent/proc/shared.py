"""The POSIX shared memory that processes use: files below /dev/shm, mapped or open."""

from __future__ import annotations

import os
import re
from typing import Set

from . import procfs

FOLDER = "/dev/shm"
_MAPPED = re.compile(rb"\S+ \S+ \S+ \S+ \d+ +(/dev/shm/[^\n]*)")


def list_shared(pid: int) -> Set[str]:
    """The paths below /dev/shm that a process has mapped or open; none where we may not look."""
    data = procfs.read_bytes("/proc/%d/maps" % pid) or b""
    found = {procfs.to_text(path) for path in _MAPPED.findall(data)}
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    targets = (procfs.read_link("%s/%s" % (folder, name)) for name in names)
    found.update(target for target in targets if target and target.startswith(FOLDER + "/"))
    return found


def list_used() -> Set[str]:
    """What any process uses, as far as we may look."""
    return {path for pid in procfs.list_pids() for path in list_shared(pid)}


def measure_shared(pid: int) -> int:
    """The bytes that lie in the shared memory of a process; a name that is gone counts nothing."""
    size = 0
    for path in list_shared(pid):
        try:
            size += os.stat(procfs.to_bytes(path)).st_blocks * 512
        except OSError:
            continue
    return size
