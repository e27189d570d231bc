"""A process's resource limits, read where everybody may read them."""

from __future__ import annotations

import resource
from typing import Dict, List, Optional

from . import procfs

# The words of fs/proc/base.c. What Python has no name for (file locks) no kernel enforces.
_NAMES = {
    "Max cpu time": "RLIMIT_CPU",
    "Max file size": "RLIMIT_FSIZE",
    "Max data size": "RLIMIT_DATA",
    "Max stack size": "RLIMIT_STACK",
    "Max core file size": "RLIMIT_CORE",
    "Max resident set": "RLIMIT_RSS",
    "Max processes": "RLIMIT_NPROC",
    "Max open files": "RLIMIT_NOFILE",
    "Max locked memory": "RLIMIT_MEMLOCK",
    "Max address space": "RLIMIT_AS",
    "Max pending signals": "RLIMIT_SIGPENDING",
    "Max msgqueue size": "RLIMIT_MSGQUEUE",
    "Max nice priority": "RLIMIT_NICE",
    "Max realtime priority": "RLIMIT_RTPRIO",
    "Max realtime timeout": "RLIMIT_RTTIME",
}
_NAME_WIDTH = 26


def read_limits(pid: int) -> Optional[Dict[str, List[int]]]:
    """The soft and the hard limit of each, by Python's names; `None` where the process is gone.

    prlimit(2) is no way: of another user's process it tells root nothing without CAP_SYS_RESOURCE,
    which root of a container does not have.
    """
    lines = (procfs.read_bytes("/proc/%d/limits" % pid) or b"").decode("ascii").splitlines()
    found = {}
    for line in lines[1:]:
        name = _NAMES.get(line[:_NAME_WIDTH].strip())
        if name is not None and hasattr(resource, name):
            found[name] = [_parse(word) for word in line[_NAME_WIDTH:].split()[:2]]
    return found or None


def _parse(word: str) -> int:
    return resource.RLIM_INFINITY if word == "unlimited" else int(word)
