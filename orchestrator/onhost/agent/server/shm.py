"""What shared memory a debug life has used, noted while it lives: a dead one cannot be asked."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, List, Mapping, Optional

from ..held.state import SessionState, write_private
from ..proc import procfs
from . import remains

SHM = "shm.json"
# A file of SGLang's is mapped or open from when it is made, so that one look shows whose it is;
# further ones are for a maker that was forked while the first was taken.
_LOOKS = 3


def begin(session: SessionState, uid: int) -> None:
    """Note what there is before the debug life; of a later start the first counts."""
    if not os.path.exists(session.path(SHM)):
        before = [list(segment) for segment in sorted(remains.list_segments(uid))]
        write_private(session.path(SHM), {"segments": before, "uid": uid})


def note(session: SessionState, pid: int, processes: Mapping[int, procfs.Stat]) -> None:
    """Note the processes of a living debug life and the segments that came since and they use.

    Only what is new is looked for, and written. Nothing here may fail whoever looks at the life.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = _read(session)
        if found is not None and _add(found, pid, dict(processes)):
            write_private(session.path(SHM), found)


def read(session: SessionState) -> Optional[remains.Life]:
    """What is known of the debug life; `None` before its first start."""
    found = _read(session)
    if found is None:
        return None
    before, seen = (_parse(found.get(name) or []) for name in ("segments", "seen"))
    return remains.Life(before, seen, frozenset(found.get("pids") or []))


def _read(session: SessionState) -> Optional[Dict[str, Any]]:
    try:
        with open(session.path(SHM), "rb") as file:
            found: Dict[str, Any] = json.loads(file.read().decode("ascii"))
            return found
    except FileNotFoundError:
        return None


def _parse(rows: List[Any]) -> Any:
    return frozenset(remains.Segment(*row) for row in rows)


def _add(found: Dict[str, Any], pid: int, processes: Dict[int, procfs.Stat]) -> bool:
    """Take in what is new; whether anything was."""
    pids: List[int] = found.setdefault("pids", [])
    seen: List[Any] = found.setdefault("seen", [])
    looks: Dict[str, int] = found.setdefault("looks", {})
    below = [stat.pid for stat in procfs.find_tree(pid, processes)]
    led = [stat.pid for stat in processes.values() if stat.sid == pid]
    new = sorted({*below, *led} - {*pids})
    pids += new
    known = _parse(found["segments"]) | _parse(seen)
    there = remains.list_segments(found["uid"]) - known
    asked = [one for one in sorted(there) if looks.get(one.path, 0) < _LOOKS]
    used = remains.find_segments([*below, *led]) if asked else set()
    for one in asked:
        looks[one.path] = looks.get(one.path, 0) + 1
        if one in used:
            seen.append(list(one))
    return bool(new or asked)
