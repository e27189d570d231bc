"""What is worth telling a person about the servers of a host; no session depends on it."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Set

from ..proc import below, procfs
from ..proc.mains import find_mains
from ..proc.shared import measure_shared
from . import gpu

# Of a user's systemd and of containers with a first process of their own.
_REAPERS = ("systemd", "init", "tini", "dumb-init", "docker-init", "catatonit")
Row = Dict[str, Any]


def survey(package: str) -> List[Row]:
    """Public descriptions of all servers of `package`, each with what surrounds it.

    Added are `uptime_s`, `workers` (pid and title of each process below it that gave itself one)
    and `gpus` (`index`, `name`, `used_mib` of all its processes together); that is `None` where
    nobody can tell.
    """
    rows: List[Row] = [dict(found) for found in find_mains(package)]
    processes = procfs.read_all()
    gpus = gpu.read_gpus() if rows else None
    holders = gpu.read_holders() if gpus is not None else None
    for row in rows:
        tree = below.find_own(row["pid"], package, processes)
        row["uptime_s"] = _read_uptime(row["start_time"])
        row["workers"] = [
            {"pid": stat.pid, "title": title}
            for stat in tree
            for title in [procfs.read_title(stat.pid)]
            if "::" in title
        ]
        row["gpus"] = _sum_up(gpus or [], holders, {stat.pid for stat in tree})
    return rows


def find_orphans(package: str) -> List[Row]:
    """Workers of servers of `package` whose main process is gone, by their titles.

    Those below any other program are its own: trainers have such workers without a server.
    Each with `pid`, `start_time`, `title`, `user`, `uptime_s`, `ports`, `gpus` as of `survey` and
    `shm_bytes`, the shared memory that it has open or mapped.
    """
    processes = procfs.read_all()
    titles = {pid: procfs.read_title(pid) for pid, stat in processes.items() if stat.alive}
    ours = {pid for pid, title in titles.items() if title.startswith(package + "::")}
    mains = [row["pid"] for row in find_mains(package)]
    served = {s.pid for main in mains for s in below.find_family(main, package, processes)}
    lost = {pid for pid in ours - served if _has_no_parent(processes[pid], processes, ours)}
    gpus = gpu.read_gpus() if lost else None
    holders = gpu.read_holders() if gpus is not None else None
    return [
        {
            "pid": pid,
            "start_time": processes[pid].start_time,
            "title": titles[pid],
            "user": procfs.user_name(int(procfs.read_status(pid).get("Uid", "0").split()[0])),
            "uptime_s": _read_uptime(processes[pid].start_time),
            "ports": procfs.find_ports(pid),
            "gpus": _sum_up(gpus or [], holders, {pid}),
            "shm_bytes": measure_shared(pid),
        }
        for pid in sorted(lost)
    ]


def _has_no_parent(stat: procfs.Stat, processes: Dict[int, procfs.Stat], ours: Set[int]) -> bool:
    """Whether only whoever takes in orphans is above it and its like."""
    while stat.ppid in ours:
        stat = processes[stat.ppid]
    parent = processes.get(stat.ppid)
    return parent is None or parent.pid == 1 or parent.comm in _REAPERS


def _read_uptime(start_time: int) -> int:
    return max(0, (procfs.read_clock() - start_time) // os.sysconf("SC_CLK_TCK"))


def _sum_up(gpus: List[Row], holders: Any, pids: Set[int]) -> Any:
    if holders is None:
        return None
    found = []
    for item in gpus:
        used = [h.used_mib for h in holders if h.gpu == item["uuid"] and h.pid in pids]
        if used:
            total = None if None in used else sum(used)
            found.append({"index": item["index"], "name": item["name"], "used_mib": total})
    return found
