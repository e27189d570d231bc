"""Which of a process's namespaces are not ours: a start from here would not give them back."""

from __future__ import annotations

import os
from typing import Any, List, Optional, Sequence, Tuple

from . import procfs

# Not that of cgroups: it only changes how their paths are shown, and who enters a container by
# its other namespaces stays outside of that one. Kernels before 5.6 have none of time.
_KINDS = {
    "net": "network namespace",
    "mnt": "mount namespace",
    "pid": "process namespace",
    "ipc": "IPC namespace",
    "uts": "host name's namespace",
    "user": "user namespace",
    "time": "time namespace",
}
ROOT = "root"


def find_foreign(pid: int) -> List[str]:
    """The kinds of namespaces, as `/proc/PID/ns` names them, in which a process is without us.

    `root` is among them where its root directory is another. What we may not read is not named.
    """
    found = [kind for kind in _KINDS if _differ(_read(pid, kind), _read(None, kind))]
    if "mnt" in found and _is_made_alike(pid):
        found.remove("mnt")
    return found + ([ROOT] if _differ(_find_root(pid), _find_root(None)) else [])


def tell(kinds: Sequence[str]) -> str:
    """Those kinds in words, with the verb that goes with them."""
    names = [_KINDS.get(kind, "root directory") for kind in kinds]
    head = ", ".join(names[:-1])
    return "%s%s %s" % (head and head + " and ", names[-1], "are" if head else "is")


def _is_made_alike(pid: int) -> bool:
    """Whether its mounts are ours, in one of those namespaces of which each command gets its own.

    `ip netns exec` does that. Such a one is told by those above us, who are in another; where all
    are in ours, it is the machine's, and nothing is like it.
    """
    above = procfs.find_ancestors(os.getpid(), procfs.read_all())
    outer = {_read(stat.pid, "mnt") for stat in above} - {None, _read(None, "mnt")}
    if not outer or _read(pid, "mnt") in outer:
        return False
    mounts = _read_mounts(pid)
    return bool(mounts) and mounts == _read_mounts(None)


def _read_mounts(pid: Optional[int]) -> List[Tuple[str, ...]]:
    """Each mount without its numbers and groups: device, root, place, options, and its source."""
    path = "/proc/%s/mountinfo" % ("self" if pid is None else pid)
    lines = procfs.to_text(procfs.read_bytes(path) or b"").splitlines()
    parts = (line.partition(" - ") for line in lines)
    return sorted((*head.split()[2:6], tail) for head, _, tail in parts)


def _differ(theirs: Any, ours: Any) -> bool:
    return theirs is not None and ours is not None and theirs != ours


def _read(pid: Optional[int], kind: str) -> Optional[str]:
    return procfs.read_link("/proc/%s/ns/%s" % ("self" if pid is None else pid, kind))


def _find_root(pid: Optional[int]) -> Any:
    """By its name as well: the same directory mounted elsewhere lacks what is mounted on it."""
    path = "/proc/%s/root" % ("self" if pid is None else pid)
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return procfs.read_link(path), stat.st_dev, stat.st_ino
