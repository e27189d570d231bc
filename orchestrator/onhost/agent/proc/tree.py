"""The processes of one server, remembered from before the first signal, and how they are ended."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from . import below, procfs
from .launch import SESSION_VARIABLE

Key = Tuple[int, int]

_POLL_S = 0.03
# Once the main process is gone its workers follow within a second (0.6 s was the longest seen).
_ORPHANS_S = 2.0
_KILL_S = 10.0


def is_alive(pid: int, start_time: int) -> bool:
    """Whether that very process runs; a zombie is gone, a stopped process is not."""
    stat = procfs.read_stat(pid)
    return stat is not None and stat.start_time == start_time and stat.alive


class Tree:
    """The processes of one server as far as they were ever seen, dead ones included.

    `seen` are pairs of pid and start time that were below its main process earlier: workers whose
    main process died since then are known by them alone.
    """

    def __init__(
        self,
        main: Optional[Mapping[str, int]],
        session: Optional[str],
        seen: Iterable[Any] = (),
    ) -> None:
        self.session = session
        self.titles: Dict[Key, str] = {}
        self.main: Optional[Key] = None
        self.has_lost_main = False
        self._leader: Optional[Key] = None
        self._package: Optional[str] = None
        self._seen = [(int(pid), int(start_time)) for pid, start_time in seen]
        if main is not None:
            key = (main["pid"], main["start_time"])
            self.main = key if is_alive(*key) else None
            self.has_lost_main = self.main is None
            self._package = below.find_package(key[0]) if self.main else None
            # `start` made it the leader of a process session, which outlives it in its workers.
            self._leader = key if session is not None else None

    def record(self, everywhere: bool = False) -> None:
        """Note what runs below the processes seen so far; `everywhere` asks all for the session."""
        processes = procfs.read_all()
        roots = list(self.titles) + self._seen + ([self.main] if self.main else [])
        found: Set[int] = set()
        for pid, start_time in roots:
            stat = processes.get(pid)
            if stat is not None and stat.start_time == start_time:
                found.update(item.pid for item in procfs.find_tree(pid, processes))
        found -= self._find_others(found, processes)
        if self.session is not None and everywhere:
            found.update(stat.pid for stat in processes.values() if self._carries(stat, processes))
        for pid in found - {os.getpid()}:
            key = (pid, processes[pid].start_time)
            if processes[pid].alive and key not in self.titles:
                self.titles[key] = procfs.read_title(pid)

    def _find_others(self, found: Set[int], processes: Mapping[int, procfs.Stat]) -> Set[int]:
        """What another server below this one has: nothing of it is ever ended with this one."""
        if self.main is None or found <= self.pids:
            return set()
        apart = below.find_apart(self.main[0], self._package, dict(processes))
        return {item.pid for pid in apart for item in procfs.find_tree(pid, dict(processes))}

    @property
    def pids(self) -> Set[int]:
        """The numbers of all processes ever seen."""
        return {pid for pid, _ in self.titles}

    def alive(self) -> List[Key]:
        """Those that still run."""
        return sorted(key for key in self.titles if is_alive(*key))

    def heads(self) -> List[Key]:
        """Whom to ask first: the main process, or where there is none those with nobody above."""
        if self.main is not None:
            return [self.main]
        stats = {key: procfs.read_stat(key[0]) for key in self.alive()}
        return [key for key, stat in stats.items() if stat and stat.ppid not in self.pids]

    def describe_left(self) -> List[str]:
        """One text for each that still runs, the oldest first; numbers begin anew at some point."""
        left = sorted(self.alive(), key=lambda key: (key[1], key[0]))
        return ["process %d (%s) is still there" % (key[0], self.titles[key]) for key in left]

    def _carries(self, stat: procfs.Stat, processes: Mapping[int, procfs.Stat]) -> bool:
        """A worker that wrote a title over its environment is known by its process session."""
        if self._leader is not None and stat.sid == self._leader[0]:
            pid, start_time = self._leader
            leader = processes.get(pid)
            if leader is None or leader.start_time == start_time:
                return stat.start_time >= start_time
        environ = procfs.read_environ(stat.pid)
        return environ is not None and environ.get(SESSION_VARIABLE) == self.session


def wait_for_end(tree: Tree, deadline: float) -> None:
    """Wait until all have ended, at most to the deadline, and 2 s beyond the main process's end,
    also where that came before anybody waited.
    """
    if tree.has_lost_main:
        deadline = min(deadline, time.monotonic() + _ORPHANS_S)
    while tree.alive():
        now = time.monotonic()
        if tree.main is not None and not is_alive(*tree.main):
            deadline = min(deadline, now + _ORPHANS_S)
            tree.main = None
        if now >= deadline:
            return
        time.sleep(_POLL_S)
        tree.record()


def kill(tree: Tree) -> Set[Key]:
    """SIGKILL whatever runs, again and again while new ones appear; returns whom it was sent."""
    killed: Set[Key] = set()
    deadline = time.monotonic() + _KILL_S
    tree.record(everywhere=True)
    while tree.alive() and time.monotonic() < deadline:
        for key in tree.alive():
            if key not in killed and send(key, signal.SIGKILL):
                killed.add(key)
        time.sleep(_POLL_S)
        tree.record(everywhere=True)
    return killed


def send(key: Key, number: int) -> bool:
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
