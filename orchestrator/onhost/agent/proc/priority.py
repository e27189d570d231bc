"""How the kernel ranks a process beside its nice value: scheduling policy and disk priority."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import List, Optional, Sequence

_WHO_PROCESS = 1
# ioprio_set(2) and ioprio_get(2), which no library wraps.
_SYSCALLS = {
    "x86_64": (251, 252),
    "aarch64": (30, 31),
    "ppc64le": (273, 274),
    "s390x": (282, 283),
}
# As chrt(1) names them.
_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline"}
_CLASSES = ("none", "realtime", "best-effort", "idle")


def read_scheduler(pid: int) -> Optional[List[int]]:
    """The policy and the priority of real-time policies; `None` where it may not be read."""
    try:
        return [os.sched_getscheduler(pid), os.sched_getparam(pid).sched_priority]
    except OSError:
        return None


def set_scheduler(scheduler: Sequence[int]) -> None:
    """Give the calling process this policy; raises `OSError` where the kernel refuses."""
    if read_scheduler(0) != list(scheduler):
        os.sched_setscheduler(0, scheduler[0], os.sched_param(scheduler[1]))


def name_scheduler(scheduler: Sequence[int]) -> str:
    """`batch`, or `fifo 10`."""
    policy, priority = scheduler
    name = _POLICIES.get(policy & 0xFF, str(policy))
    return "%s %d" % (name, priority) if priority else name


def read_disk(pid: int) -> Optional[int]:
    """The disk priority as ioprio_get(2) gives it; `None` where it may not be read."""
    numbers = _SYSCALLS.get(platform.machine())
    if numbers is None:
        return None
    found = ctypes.CDLL(None, use_errno=True).syscall(numbers[1], _WHO_PROCESS, pid)
    return found if found >= 0 else None


def set_disk(priority: int) -> None:
    """Give the calling process this disk priority; raises `OSError` where the kernel refuses."""
    numbers = _SYSCALLS.get(platform.machine())
    if numbers is None or read_disk(0) == priority:
        return
    if ctypes.CDLL(None, use_errno=True).syscall(numbers[0], _WHO_PROCESS, 0, priority) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def name_disk(priority: int) -> str:
    """`idle`, or `best-effort 6`."""
    kind, level = priority >> 13, priority & 0x1FFF
    name = _CLASSES[kind] if kind < len(_CLASSES) else str(kind)
    return "%s %d" % (name, level) if kind in (1, 2) else name
