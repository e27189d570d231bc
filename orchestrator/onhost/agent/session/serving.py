"""What runs of a session's server now: looked at, and not what its journal said last."""

from __future__ import annotations

from typing import Dict, List, Optional

from ..held import lease
from ..held.facts import Facts
from ..proc import procfs
from ..proc.launch import SESSION_VARIABLE


def read_server(facts: Facts, mark: str) -> str:
    """Which life of the server there is, `mark` being the session's.

    `untouched` by the session · `stopping` its end was begun, or said, and it runs still ·
    `stopped` · `debug life` something of it runs · `restored` · `unknown`, where how it ran was
    lost. A debug life or an original given back of which nothing runs any more is `gone since`.
    """
    if facts.restored is not None:
        return "restored" if _runs(facts.restored) else "restored, and gone since"
    if facts.lost_server:
        return "unknown"
    if facts.debug is not None or facts.started is not None:
        return "debug life" if _has_debug(facts, mark) else "debug life, and gone since"
    if facts.stopping is None:
        return "untouched"
    main = (facts.server or {}).get("main")
    return "stopping" if main is not None and _is_this_boot(facts) and _runs(main) else "stopped"


def find_marked(mark: str) -> List[procfs.Stat]:
    """Every process that carries the mark of a session's debug life in its environment."""
    every = procfs.read_all()
    marked = [p for p in every if (procfs.read_environ(p) or {}).get(SESSION_VARIABLE) == mark]
    return [every[p] for p in sorted(marked) if every[p].alive]


def _has_debug(facts: Facts, mark: str) -> bool:
    """Whether its main process runs, or a worker that outlived it.

    A worker that wrote a title over its environment is known by its process session.
    """
    debug = facts.debug
    if not _is_this_boot(facts):
        return False
    if debug is not None:
        if _runs(debug):
            return True
        every = procfs.read_all().values()
        if any(one.alive and one.sid == debug["pid"] and _is_after(one, debug) for one in every):
            return True
    return bool(find_marked(mark))


def _is_after(one: procfs.Stat, leader: Dict[str, int]) -> bool:
    return one.start_time >= leader["start_time"]


def _runs(process: Dict[str, int]) -> bool:
    return lease.is_alive(lease.Process(process["pid"], process["start_time"]))


def _is_this_boot(facts: Facts) -> bool:
    """Whether the host has not been restarted since, which no process outlives."""
    boot_id: Optional[str] = (facts.begun or {}).get("boot_id")
    return boot_id in (None, lease.read_boot_id())
