"""A described server that runs again already, told from others that only look like it."""

from __future__ import annotations

import os
import stat as stat_module
import time
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from ..held import lease
from ..held.facts import Facts
from ..proc import below, procfs
from ..proc.above import owner
from ..proc.namespaces import find_foreign
from ..proc.tree import is_alive

Known = Mapping[str, Any]
Key = Tuple[int, int]


def stamp(description: Known) -> Dict[str, Any]:
    """The description with the moment at which it was made, for `find_since`."""
    now = {"boot_id": lease.read_boot_id(), "clock": procfs.read_clock()}
    return dict(description, described_at=now)


def find_since(description: Known, facts: Facts) -> int:
    """When at the earliest the server may have begun again, in the unit of start times.

    That is the first word of its stop, and where there was none, the description: what ran then
    beside it is another server. After a reboot everything began later.
    """
    described = description.get("described_at") or {}
    if described.get("boot_id") != lease.read_boot_id():
        return 0
    down = 0 if facts.down_s is None else procfs.to_ticks(facts.down_s)
    return max(int(described["clock"]), down)


def find_twin(description: Known, since: int) -> Optional[Dict[str, Any]]:
    """A process with exactly this command line, directory and environment; the outermost one.

    It has to have begun at `since` or later, and in the namespaces of the described one.
    """
    processes = procfs.read_all()
    twins = {
        stat.pid
        for stat in processes.values()
        if stat.start_time >= since and _is_twin(stat.pid, description)
    }
    for pid in sorted(twins):
        stat = processes[pid]
        if stat.ppid not in twins and stat.alive:
            return {"pid": pid, "start_time": stat.start_time}
    return None


def may_run_planned(start_time: int, facts: Facts) -> bool:
    """Whether a process that began then may have imported planned bytes, and runs them still."""
    if facts.patched_s is None or start_time >= procfs.to_ticks(_find_back(facts)):
        return False
    same_boot = (facts.begun or {}).get("boot_id") == lease.read_boot_id()
    return not same_boot or start_time >= procfs.to_ticks(facts.patched_s)


def is_outdated(start_time: int, facts: Facts) -> bool:
    """Whether we took bytes out of the install that a process which began then may run still."""
    back = facts.back
    if back is None or back["boot_id"] != lease.read_boot_id():
        return False
    return start_time < procfs.to_ticks(float(back["back_s"]))


def _find_back(facts: Facts) -> float:
    """Since when no planned bytes are in place, on this boot's clock; they are not by now."""
    if facts.back is not None:
        same_boot = facts.back["boot_id"] == lease.read_boot_id()
        return float(facts.back["back_s"]) if same_boot else 0.0
    # The line was lost, or another host put them back: a rename sets the time of the inode.
    paths = [one.path for one in facts.files if one.before_sha256 is not None]
    paths += [item["path"] for item in (facts.sharing or {"files": []})["files"]]
    ages = [age for age in map(_read_age, paths) if age is not None]
    return lease.now_s() - min(ages) if ages else 0.0


def _read_age(path: str) -> Optional[float]:
    """How long ago a file was renamed to its place, by the clock of whoever keeps it."""
    try:
        with open(path, "rb") as file:  # a file server is asked anew at each open
            changed = os.fstat(file.fileno()).st_ctime
    except OSError:
        return None
    return _read_time(os.path.dirname(path)) - changed


def _read_time(folder: str) -> float:
    """What time it is for a file system: a file server's clock may differ from ours by minutes.

    To give a folder the mode that it has sets the time of its inode, and nothing else.
    """
    try:
        mode = os.stat(folder).st_mode
        # For want of the group, a user who sets it would lose this bit.
        if os.geteuid() == 0 or not mode & stat_module.S_ISGID:
            os.chmod(folder, stat_module.S_IMODE(mode))
            return os.stat(folder).st_ctime
    except OSError:
        pass  # not ours to change: most clocks are right
    return time.time()


def list_others(way: Optional[Known], ours: Set[int]) -> Dict[Key, Known]:
    """How the servers of the same package run that are none of ours, where others stop ours.

    A command of the user's may stop more than it should, and only its effect can tell.
    """
    if way is None:
        return {}
    processes = procfs.read_all()
    heads = [pid for pid in below.find_heads(way["package"], processes) if pid not in ours]
    return {(pid, processes[pid].start_time): _read_known(pid) for pid in heads}


def tell_ended(others: Mapping[Key, Known], since: int) -> List[str]:
    """Those of `list_others` that are gone now, in words, and what runs in their place since."""
    told = []
    for key, known in others.items():
        if is_alive(*key):
            continue
        text = "%s ended as well, which the session was not about" % known["name"]
        again = [stat.pid for stat in _list_begun(since) if _is_like(stat.pid, known)]
        told.append(text + "".join("; process %d runs in its place" % pid for pid in again[:1]))
    return told


def _read_known(pid: int) -> Known:
    return {
        "name": "process %d (%s)" % (pid, procfs.read_title(pid)),
        "argv": procfs.parse_strings(procfs.read_cmdline(pid)),
        "cwd": procfs.read_link("/proc/%d/cwd" % pid),
        "namespaces": find_foreign(pid),
    }


def _list_begun(since: int) -> List[procfs.Stat]:
    return [s for s in procfs.read_all().values() if s.start_time >= since and s.alive]


def find_successors(known: Known, ours: Set[int], since: int) -> List[str]:
    """Servers that were started in the place of the described one: somebody watches it.

    `since` is the clock of start times before the stop. One that takes longer to come up holds
    the port when the debug life wants it, and is named then.
    """
    found: List[str] = []
    for stat in _list_begun(since) if known.get("argv") else ():
        if stat.pid not in ours and _is_like(stat.pid, known):
            parent = owner.name_process(stat.ppid) if stat.ppid > 1 else "somebody"
            found.append("process %d was started in its place by %s" % (stat.pid, parent))
    return found


def _is_twin(pid: int, description: Known) -> bool:
    if not _is_like(pid, description):
        return False
    if description.get("way"):  # its supervisor may hand it another environment
        return True
    return procfs.read_environ(pid) == description.get("environ")


def _is_like(pid: int, description: Known) -> bool:
    """Whether it runs the same, in the same directory and place.

    The namespaces that systemd or a container gives a service are others in each of its lives, so
    that their kinds have to serve: a server without such is in ours.
    """
    argv = procfs.parse_strings(procfs.read_cmdline(pid))
    if not argv or argv != list(description["argv"]):
        return False
    if procfs.read_link("/proc/%d/cwd" % pid) != description.get("cwd"):
        return False
    return find_foreign(pid) == list(description.get("namespaces") or ())
