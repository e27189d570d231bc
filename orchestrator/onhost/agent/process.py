"""The life of a server's processes on this host: describe, start, stop and compare them.

A process is a pid and the start time that goes with it; none is ever found or ended by its name.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from . import procfs
from .compare import compare
from .describe import describe, public, with_output
from .launch import SESSION_VARIABLE, adopt_orphans, start
from .mains import find_mains

__all__ = [
    "adopt_orphans",
    "compare",
    "describe",
    "find_mains",
    "is_alive",
    "public",
    "start",
    "stop",
    "with_output",
]

Key = Tuple[int, int]

_POLL_S = 0.03
# Once the main process is gone its workers follow within a second (0.6 s was the longest seen).
_ORPHANS_S = 2.0
_KILL_S = 10.0
_PORT_S = 5.0


def is_alive(pid: int, start_time: int) -> bool:
    """Whether that very process runs; a zombie is gone, a stopped process is not."""
    stat = procfs.read_stat(pid)
    return stat is not None and stat.start_time == start_time and stat.alive


def stop(
    main: Optional[Mapping[str, int]],
    session: Optional[str],
    timeout_s: float,
    port: Optional[int],
) -> Dict[str, Any]:
    """End a server: SIGTERM to its main process, SIGKILL to what is left after `timeout_s`.

    Its processes are `main`, everything below it from before the signal on, reparented or not,
    and with `session` whatever carries that session in its environment. Then waits until none of
    them listens on `port`. `left` says in words what is still there; empty is success.
    """
    began = time.monotonic()
    tree = _Tree(main, session)
    tree.record(everywhere=True)
    if tree.main is not None:
        _send(tree.main, signal.SIGTERM)
        _wait_for_end(tree, began + timeout_s)
    killed = _kill(tree)
    left = [
        "process %d (%s) is still there" % (pid, tree.titles[pid, at]) for pid, at in tree.alive()
    ]
    if port is not None:
        left += _wait_for_port(port, tree)
    stopped = sorted(key[0] for key in tree.titles if key not in killed and not is_alive(*key))
    return {
        "stopped": stopped,
        "killed": sorted(pid for pid, _ in killed),
        "seconds": round(time.monotonic() - began, 3),
        "left": left,
    }


class _Tree:
    """The processes of one server as far as they were ever seen, dead ones included."""

    def __init__(self, main: Optional[Mapping[str, int]], session: Optional[str]) -> None:
        self.session = session
        self.titles: Dict[Key, str] = {}
        self.main: Optional[Key] = None
        self._leader: Optional[Key] = None
        if main is not None:
            key = (main["pid"], main["start_time"])
            self.main = key if is_alive(*key) else None
            # `start` made it the leader of a process session, which outlives it in its workers.
            self._leader = key if session is not None else None

    def record(self, everywhere: bool = False) -> None:
        """Note what runs below the processes seen so far; `everywhere` asks all for the session."""
        processes = procfs.read_all()
        roots = list(self.titles) + ([self.main] if self.main else [])
        found: Set[int] = set()
        for pid, start_time in roots:
            stat = processes.get(pid)
            if stat is not None and stat.start_time == start_time:
                found.update(item.pid for item in procfs.find_tree(pid, processes))
        if self.session is not None and everywhere:
            found.update(stat.pid for stat in processes.values() if self._carries(stat, processes))
        for pid in found - {os.getpid()}:
            key = (pid, processes[pid].start_time)
            if processes[pid].alive and key not in self.titles:
                self.titles[key] = procfs.read_title(pid)

    def alive(self) -> List[Key]:
        """Those that still run."""
        return sorted(key for key in self.titles if is_alive(*key))

    def _carries(self, stat: procfs.Stat, processes: Mapping[int, procfs.Stat]) -> bool:
        """A worker that wrote a title over its environment is known by its process session."""
        if self._leader is not None and stat.sid == self._leader[0]:
            pid, start_time = self._leader
            leader = processes.get(pid)
            if leader is None or leader.start_time == start_time:
                return stat.start_time >= start_time
        environ = procfs.read_environ(stat.pid)
        return environ is not None and environ.get(SESSION_VARIABLE) == self.session


def _wait_for_end(tree: _Tree, deadline: float) -> None:
    while tree.alive():
        now = time.monotonic()
        if tree.main is not None and not is_alive(*tree.main):
            deadline = min(deadline, now + _ORPHANS_S)
            tree.main = None
        if now >= deadline:
            return
        time.sleep(_POLL_S)
        tree.record()


def _kill(tree: _Tree) -> Set[Key]:
    """SIGKILL whatever runs, again and again while new ones appear; returns whom it was sent."""
    killed: Set[Key] = set()
    deadline = time.monotonic() + _KILL_S
    tree.record(everywhere=True)
    while tree.alive() and time.monotonic() < deadline:
        for key in tree.alive():
            if key not in killed and _send(key, signal.SIGKILL):
                killed.add(key)
        time.sleep(_POLL_S)
        tree.record(everywhere=True)
    return killed


def _send(key: Key, number: int) -> bool:
    """Signal that very process, never another one that has its number by now."""
    pid, start_time = key
    try:
        if not hasattr(os, "pidfd_open"):  # Python 3.8
            if not is_alive(pid, start_time):
                return False
            os.kill(pid, number)
            return True
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_alive(pid, start_time):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _wait_for_port(port: int, tree: _Tree) -> List[str]:
    """Wait until the port is free; one that somebody else holds is not waited for."""
    deadline = time.monotonic() + _PORT_S
    ours = {pid for pid, _ in tree.titles}
    while True:
        inodes = [item.inode for item in procfs.list_listeners() if item.port == port]
        if not inodes:
            return []
        owner = procfs.find_owner(inodes, procfs.list_pids())
        if (owner is not None and owner not in ours) or time.monotonic() >= deadline:
            return ["port %d is still held by %s" % (port, name_owner(owner))]
        time.sleep(_POLL_S)


def name_owner(pid: Optional[int]) -> str:
    """`process 12 (python -m http.server) of root`, as far as we may know it."""
    if pid is None:
        return "a process that we may not see"
    uid = procfs.read_status(pid).get("Uid", "0").split()[0]
    return "process %d (%s) of %s" % (pid, procfs.read_title(pid), procfs.user_name(int(uid)))
