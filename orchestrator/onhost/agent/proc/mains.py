"""Finding the main processes of servers among all processes of the host."""

from __future__ import annotations

from typing import Any, Dict, List

from ..refusal import Refusal
from . import commandline, procfs
from .describe import describe, public


def find_mains(package: str) -> List[Dict[str, Any]]:
    """Public descriptions of all main processes of servers of `package`, oldest first.

    Workers, wrappers that wait for a server, and forked copies of a main process are left out.
    """
    processes = procfs.read_all()
    mains = {pid for pid, stat in processes.items() if stat.alive and is_main(pid, package)}
    found = []
    for pid in sorted(mains, key=lambda number: (processes[number].start_time, number)):
        if any(stat.pid in mains for stat in procfs.find_ancestors(pid, processes)):
            continue
        try:
            found.append(public(describe(pid, processes[pid].start_time)))
        except Refusal:
            continue  # it ended while we looked
    return found


def is_main(pid: int, package: str) -> bool:
    """Whether this process is the main process of a server of `package`, as its argv tells."""
    data = procfs.read_cmdline(pid)
    # 0.5.2 writes a title over the arguments of its main process; it is found all the same, so
    # that the user learns why it cannot be adopted.
    if data.startswith((package + "::http_server").encode()):
        return True
    if package.encode() not in data:
        return False  # spares most processes the reads below
    executable = procfs.read_link("/proc/%d/exe" % pid) or ""
    cwd = procfs.read_link("/proc/%d/cwd" % pid) or "/"
    return commandline.is_main(procfs.parse_strings(data), executable, cwd, package)
