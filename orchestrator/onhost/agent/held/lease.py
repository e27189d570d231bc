"""The time-limited right to have an install changed, in a file that survives its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional

from ..proc import procfs
from ..refusal import Refusal
from ..space import naming
from . import journal, untrusted
from .untrusted import fields, is_seconds, is_text, is_whole, maybe

NAME = "lease"
# Padded to one size, so that a renewal overwrites in place: it needs no space on a full disk.
SIZE_BYTES = 1024
AGENT, GUARD, RECOVER = "agent", "guard", "recover"
# The deadline of whoever undoes a session, and of what has to be undone at once: long past.
OVER_S = 0.0
# Whose lease ran out still has to stop its server, 8 to 10 s as measured.
_STOPPING_S = 60.0
# One try of a guard: members are waited for, a server is asked to end, then killed.
_TRY_S = 180.0


class Process(NamedTuple):
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    start_time: int

    def as_json(self) -> Dict[str, int]:
        """The form in which the protocol names a process."""
        return {"pid": self.pid, "start_time": self.start_time}


@dataclass(frozen=True)
class Lease:
    """Who may change things until when. `deadline_s` is `None` for a session that is kept.

    `by` is `agent`, or `guard` or `recover` once one of these has taken over to undo everything;
    theirs lasts as long as their process does. An agent that has `let_go` drives it no more, even
    while it still runs.
    """

    epoch: int
    by: str
    agent: Process
    boot_id: str
    deadline_s: Optional[float]
    lease_s: float
    grace_s: float
    detached: bool = False
    ended: bool = False
    let_go: bool = False

    def is_live(self) -> bool:
        """Whether the holder's right still stands; once false it never becomes true again."""
        if self.ended or self.boot_id != read_boot_id() or self.deadline_s is None:
            return False
        if self.by != AGENT:
            return is_alive(self.agent)
        return now_s() < self.deadline_s

    def is_kept(self) -> bool:
        """Whether the session was left as it is on purpose, for a later revert."""
        return self.deadline_s is None and not self.ended

    def limit_s(self) -> Optional[float]:
        """How long its holder may give no sign of life and be there all the same; `None`: for ever.

        The longest that nobody renews it, and the work that follows its end.
        """
        if self.deadline_s is None:
            return None
        unseen_s = self.lease_s if self.by == AGENT else _TRY_S
        return unseen_s + self.grace_s + _STOPPING_S


def now_s() -> float:
    """Seconds since boot, suspended time included; no one can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_boot_id() -> str:
    """What tells one boot of this host from another."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def read_process_space() -> str:
    """What tells processes that are numbered together from those of a container."""
    return os.readlink("/proc/self/ns/pid")


def find_process(pid: int) -> Optional[Process]:
    """The process that has this number now."""
    stat = procfs.read_stat(pid)
    return None if stat is None else Process(pid, stat.start_time)


def me() -> Process:
    """The calling process."""
    found = find_process(os.getpid())
    if found is None:
        raise Refusal("unsupported", "`/proc` does not show this process")
    return found


def is_alive(process: Process) -> bool:
    """Whether that very process still runs; a zombie does not."""
    stat = procfs.read_stat(process.pid)
    return stat is not None and stat.start_time == process.start_time and stat.alive


def is_stopped(process: Process) -> bool:
    """Whether that very process was stopped by a signal and waits for another one."""
    stat = procfs.read_stat(process.pid)
    return stat is not None and stat.start_time == process.start_time and stat.state in "Tt"


def end(process: Process, wait_s: float = 10.0) -> bool:
    """SIGKILL that very process and wait for it; also ends one that is stopped.

    False where it has not gone: it is then waiting in the kernel and will never run code again.
    """
    if process.pid == os.getpid() or not is_alive(process):
        return process.pid != os.getpid()
    with contextlib.suppress(OSError):  # it went by itself
        _kill(process)
    limit_s = time.monotonic() + wait_s
    while is_alive(process):
        if time.monotonic() > limit_s:
            return False
        time.sleep(0.005)
    return True


def _kill(process: Process) -> None:
    if not hasattr(os, "pidfd_open"):  # before Python 3.9
        os.kill(process.pid, signal.SIGKILL)
        return
    # Held by descriptor, the number cannot come to mean another process before the signal.
    fd = os.pidfd_open(process.pid)
    try:
        if is_alive(process):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    finally:
        os.close(fd)


def read(directory: str) -> Optional[Lease]:
    """The lease of a session, or `None` where there is none that can be read.

    Readers take no lock; what they catch half-written is read again. The directory may be one that
    somebody's lock names, so nothing in it is taken as given.
    """
    for _ in range(20):
        try:
            data = untrusted.read(os.path.join(directory, NAME), SIZE_BYTES).data
        except (OSError, ValueError):
            return None
        record = journal.unseal(data.rstrip(b" \n"))
        if record is not None:
            return _parse(record)
        time.sleep(0.002)
    return None


def write(directory: str, lease: Lease) -> None:
    """Put a lease in place of what is there; the caller holds `exclusive`.

    Not synced: after a power cut the boot id is another one, and the lease is over anyway.
    """
    record: Dict[str, Any] = dict(lease.__dict__, agent=lease.agent.as_json())
    data = journal.seal(record).rstrip(b"\n")
    path = os.path.join(directory, NAME)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with naming(path):
            os.pwrite(fd, data.ljust(SIZE_BYTES - 1) + b"\n", 0)
    finally:
        os.close(fd)


_SHAPE = fields(
    epoch=is_whole,
    by=lambda value: value in (AGENT, GUARD, RECOVER),
    agent=fields(pid=is_whole, start_time=is_whole),
    boot_id=is_text,
    deadline_s=maybe(is_seconds),
    lease_s=is_seconds,
    grace_s=is_seconds,
)
_FLAGS = ("detached", "ended", "let_go")


def _parse(record: Dict[str, Any]) -> Optional[Lease]:
    if not _SHAPE(record) or not all(isinstance(record.get(n, False), bool) for n in _FLAGS):
        return None
    known = {name: record[name] for name in Lease.__dataclass_fields__ if name in record}
    agent = Process(record["agent"]["pid"], record["agent"]["start_time"])
    return Lease(**dict(known, agent=agent))


@contextlib.contextmanager
def exclusive(directory: str, wait_s: float = 5.0) -> Iterator[bool]:
    """Hold the lease file against other writers; yields false where it was not given in time.

    It is only ever held for a read and a write, so one that does not come is held by a process
    that was stopped there, which the taker of an expired lease must not wait for.
    """
    path = os.path.join(directory, "lease.lock")
    with flocked(path, wait_s) as held:
        yield held


@contextlib.contextmanager
def flocked(path: str, wait_s: float, on_wait: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Hold a lock file; yields false where somebody else held it all the time.

    `on_wait` is called again and again while somebody else has it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _try_flock(fd, wait_s, on_wait)
    finally:
        os.close(fd)


def _try_flock(fd: int, wait_s: float, on_wait: Callable[[], None]) -> bool:
    limit_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > limit_s:
                return False
            on_wait()
            time.sleep(0.005)


def change(directory: str, epoch: int, holder: Process, **changes: Any) -> Lease:
    """Change a live or kept lease that is ours and give it back; else `fenced`."""
    with exclusive(directory) as held:
        lease = read(directory)
        if not held or lease is None or not is_ours(lease, epoch, holder):
            raise Refusal("fenced", explain(lease, epoch, holder))
        lease = replace(lease, **changes)
        write(directory, lease)
    return lease


def is_ours(lease: Lease, epoch: int, holder: Process) -> bool:
    """Whether this holder may still change things under this epoch."""
    ours = lease.epoch == epoch and lease.agent == holder
    return ours and (lease.is_live() or (lease.is_kept() and lease.boot_id == read_boot_id()))


def over(lease: Lease) -> Lease:
    """The same lease with its time run out."""
    return replace(lease, deadline_s=OVER_S)


def explain(lease: Optional[Lease], epoch: int, holder: Process) -> str:
    """Why `is_ours` says no."""
    if lease is None:
        return "the session's lease is gone"
    if lease.ended:
        return "the session is over"
    if lease.boot_id != read_boot_id():
        return "the host was restarted since the session began"
    if lease.epoch != epoch or lease.agent != holder:
        return "the session was taken over by %s (process %d)" % (_WHO[lease.by], lease.agent.pid)
    return "the lease ran out"


_WHO = {AGENT: "another controller", GUARD: "the guard", RECOVER: "a revert"}
