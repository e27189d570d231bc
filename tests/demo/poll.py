"""Waiting for a fact instead of a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
CEILING_S = 30.0


def wait_for(fact: Callable[[], T], what: str) -> T:
    """The first true value of `fact`; fails with `what` at the ceiling."""
    deadline = time.monotonic() + CEILING_S
    while not (found := fact()):
        assert time.monotonic() < deadline, f"never saw {what}"
        time.sleep(0.01)
    return found


def is_running(pid: int) -> bool:
    """Whether this process lives; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
