"""What is worth telling a person about the servers of a host; no session depends on it."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Set

from ..proc import procfs
from ..proc.mains import find_mains
from . import gpu

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
        tree = procfs.find_tree(row["pid"], processes)
        ticks = procfs.read_clock() - row["start_time"]
        row["uptime_s"] = max(0, ticks // os.sysconf("SC_CLK_TCK"))
        row["workers"] = [
            {"pid": stat.pid, "title": title}
            for stat in tree
            for title in [procfs.read_title(stat.pid)]
            if "::" in title
        ]
        row["gpus"] = _sum_up(gpus or [], holders, {stat.pid for stat in tree})
    return rows


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
