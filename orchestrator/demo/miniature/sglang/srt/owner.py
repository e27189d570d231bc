"""Whose server this is: a demonstration's ends with the process that made it, however that dies."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

VARIABLE = "SGLANG_MINIATURE_OWNER"  # "<pid> <start time>", handed on from life to life
LOOK_S = 0.5


def watch_owner(gone: Callable[[], object]) -> None:
    """Call `gone` once the owner has died; without one, nothing happens."""
    pid, _, start_time = os.environ.get(VARIABLE, "").partition(" ")
    if pid:
        thread = threading.Thread(target=_watch, args=(pid, start_time, gone), daemon=True)
        thread.start()


def _watch(pid: str, start_time: str, gone: Callable[[], object]) -> None:
    while _start_time(pid) == start_time:
        time.sleep(LOOK_S)
    gone()


def _start_time(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
