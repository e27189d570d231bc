"""What a server leaves outside of its processes: shared memory, memory of GPUs, its port."""

from __future__ import annotations

import os
import re
import time
from typing import FrozenSet, Iterable, List, NamedTuple, Optional, Set, Tuple

from ..look import gpu
from ..proc import procfs
from ..proc.shared import FOLDER, list_shared, list_used
from . import ports

# What SGLang names its own (`sgl_shm_mq_*`, `sglang_loads_*`: left behind by 0.5.16 and 0.5.23
# even after a clean SIGTERM, 25 MB each) and the semaphores of multiprocessing, which a SIGKILL
# leaves. Segments of any other name may be meant to outlive a server.
_OURS = re.compile(r"(sgl|sem\.mp-)")
_MAKER = re.compile(r"/sgl_shm_\w+_(\d+)_[0-9a-z]+$")
PORT_S = 5.0
# Memory comes back within seconds of the last process; pinned host memory delays it.
_GPU_S = 30.0
_POLL_S = 0.05


class Segment(NamedTuple):
    """One file of shared memory as a process of the server had it mapped or open."""

    path: str
    device: int
    inode: int


class Life(NamedTuple):
    """What is known of a life's shared memory.

    What was there before it, what its processes were seen to use since, and their numbers.
    """

    before: FrozenSet[Segment]
    seen: FrozenSet[Segment]
    pids: FrozenSet[int]


def find_segments(pids: Iterable[int]) -> Set[Segment]:
    """The shared memory that these processes use under a name that only SGLang gives."""
    paths = {path for pid in pids for path in list_shared(pid)}
    found = set()
    for path in paths:
        if not _OURS.match(os.path.basename(path)):
            continue
        try:
            stat = os.lstat(path)
        except OSError:
            continue  # its name is gone already: it ends with its last user
        found.add(Segment(path, stat.st_dev, stat.st_ino))
    return found


def list_segments(uid: int) -> Set[Segment]:
    """All shared memory of a user's that has one of SGLang's names, whoever uses it."""
    found = set()
    for name in os.listdir(FOLDER) if os.path.isdir(FOLDER) else ():
        path = os.path.join(FOLDER, name)
        try:
            stat = os.lstat(path)
        except OSError:
            continue
        if _OURS.match(name) and stat.st_uid == uid:
            found.add(Segment(path, stat.st_dev, stat.st_ino))
    return found


def find_abandoned(
    life: Life, ours: Set[Segment], uid: int, numbers: Iterable[int] = ()
) -> Tuple[Set[Segment], List[str]]:
    """What a life that is over left beside `ours`: what it was seen to use, or has its name on.

    Others of the same user make such segments at any time, and may mean to hand them on. So one
    counts only where a process of the life had it mapped or open, or where SGLang wrote into its
    name that one made it (of those, or of `numbers`). In a container that number may be another
    container's, in a folder that both use: then it is named and left.
    """
    pids = {*life.pids, *numbers}
    new = list_segments(uid) - ours - life.before
    own = {one for one in new if one in life.seen or _find_maker(one) in pids}
    used = list_used() if own else set()
    found = {one for one in own if one.path not in used and not _has_maker(one)}
    unsure = set() if procfs.sees_machine() else found - life.seen
    if not unsure:
        return found, []
    names = ", ".join(sorted(os.path.basename(one.path) for one in unsure))
    return found - unsure, ["shared memory %s is left: it may be another container's" % names]


def _find_maker(segment: Segment) -> Optional[int]:
    """The process that stands in the name: `sgl_shm_<kind>_<pid>_<random>`."""
    match = _MAKER.search(segment.path)
    return int(match.group(1)) if match else None


def _has_maker(segment: Segment) -> bool:
    pid = _find_maker(segment)
    stat = None if pid is None else procfs.read_stat(pid)
    return stat is not None and stat.alive


def remove_segments(segments: Iterable[Segment]) -> Tuple[List[str], List[str]]:
    """Remove those that nobody uses any more: the names removed, and in words what was left."""
    removed: List[str] = []
    left: List[str] = []
    waiting = [segment for segment in sorted(segments) if _is_there(segment)]
    used = list_used() if waiting else set()
    for segment in waiting:
        name = os.path.basename(segment.path)
        if segment.path in used:
            left.append("shared memory %s is in use by another process" % name)
            continue
        try:
            os.unlink(segment.path)
            removed.append(name)
        except FileNotFoundError:
            continue  # whoever ended last took it away
        except OSError as error:
            left.append("shared memory %s cannot be removed: %s" % (name, error.strerror))
    return removed, left


def _is_there(segment: Segment) -> bool:
    """Whether that very file still has its name."""
    try:
        stat = os.lstat(segment.path)
    except OSError:
        return False
    return (stat.st_dev, stat.st_ino) == (segment.device, segment.inode)


def find_holders(pids: Iterable[int]) -> List[gpu.Holder]:
    """The memory of GPUs that these processes hold; empty where nobody can tell."""
    ours = set(pids)
    return [holder for holder in gpu.read_holders() or [] if holder.pid in ours]


def wait_for_gpus(held: List[gpu.Holder], limit_s: float = _GPU_S) -> List[str]:
    """Wait until none of these holders holds anything; in words what is still held then.

    Their processes are gone: what the driver still lists makes the next start run out of memory.
    """
    deadline = time.monotonic() + limit_s
    while held:
        held = find_holders(holder.pid for holder in held)
        if not held or time.monotonic() >= deadline:
            break
        time.sleep(10 * _POLL_S)
    return gpu.describe_held(held)


def wait_for_port(
    port: int, wanted: Optional[Set[str]], ours: Set[int], limit_s: float = PORT_S
) -> List[str]:
    """Wait until a server could listen there again, at the addresses `wanted` or at any.

    What only processes of `ours` still hold is waited for; somebody else is named at once.
    """
    deadline = time.monotonic() + limit_s
    while True:
        # With no process of ours: its own sockets are in the way as long as they are there.
        rivals = ports.find_rivals(port, wanted, ())
        foreign = [r for r in rivals if r.pid is not None and r.pid not in ours]
        if not rivals:
            return []
        if foreign or time.monotonic() >= deadline:
            return ["port %d is still held by %s" % (port, name_owner((foreign or rivals)[0].pid))]
        time.sleep(_POLL_S)


def name_owner(pid: Optional[int]) -> str:
    """`process 12 (python -m http.server) of root`, as far as we may know it."""
    if pid is None:
        return "a process that we may not see"
    uid = procfs.read_status(pid).get("Uid", "0").split()[0]
    return "process %d (%s) of %s" % (pid, procfs.read_title(pid), procfs.user_name(int(uid)))
