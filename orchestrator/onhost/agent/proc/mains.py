"""Finding the main processes of servers among all processes of the host."""

from __future__ import annotations

from typing import Any, Dict, List

from ..refusal import Refusal
from . import procfs
from .below import find_heads, is_main
from .describe import describe, public

__all__ = ["find_mains", "is_main"]


def find_mains(package: str) -> List[Dict[str, Any]]:
    """Public descriptions of all main processes of servers of `package`, oldest first.

    Workers, wrappers that wait for a server, and what is a part of another main process are left
    out; a server that a script started below another one is not.
    """
    processes = procfs.read_all()
    heads = find_heads(package, processes)
    found = []
    for pid in sorted(heads, key=lambda number: (processes[number].start_time, number)):
        try:
            found.append(public(describe(pid, processes[pid].start_time)))
        except Refusal:
            continue  # it ended while we looked
    return found
