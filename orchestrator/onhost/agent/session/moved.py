"""Sessions outside of this state directory: made anew in another place, or begun with another."""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from ..held import lock, sight
from ..held.state import JOURNAL, session_dir
from ..refusal import Refusal
from . import orphan, recover

Value = Dict[str, Any]


class Moved(NamedTuple):
    """The lock that leads to such a session, and where it is now.

    `is_anew` says that the directory it began in was lost; else it is the one that it began in.
    """

    path: str
    session: str
    host: str
    directory: str
    is_anew: bool


def find_all(state_dir: str, package_dirs: Iterable[str] = ()) -> List[Moved]:
    """Every one outside of this state directory: nobody would look for it there.

    One that simply has another state directory only beside a package that somebody named.
    """
    found: Dict[str, Moved] = {}
    for path, is_named in orphan.find_locks(package_dirs).items():
        one = find(path, is_named)
        if one is not None and not _is_within(one.directory, state_dir):
            found.setdefault(one.directory, one)
    return [found[key] for key in sorted(found)]


def _is_within(directory: str, state_dir: str) -> bool:
    real = os.path.realpath(directory)
    roots = (state_dir, sight.own_dir(state_dir))
    return any(
        real.startswith(os.path.realpath(os.path.join(root, "sessions")) + "/") for root in roots
    )


def find(path: str, is_named: bool = True) -> Optional[Moved]:
    """The one that this lock leads to, by the word of ourselves or root."""
    holder = lock.read_trusted(path)
    is_anew = bool(holder.get("moved"))
    if not is_anew and not (is_named and holder and orphan.is_of_here(holder)):
        return None
    session, host = holder["session"], holder["host"]
    try:
        directory = session_dir(holder["state_dir"], session, host)
        seen = os.lstat(directory)
        os.lstat(os.path.join(directory, JOURNAL))
    except (OSError, ValueError, Refusal):
        return None
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid not in (os.geteuid(), 0):
        return None
    return Moved(path, session, host, directory, is_anew)


def recover_by_lock(
    path: str,
    session: str,
    host: str,
    state_dir: str,
    force: bool = False,
    hold: Optional[recover.Hold] = None,
) -> Optional[Value]:
    """Undo the session of these names that this lock alone leads to; `None` where it leads to none.

    Value and refusals as of `recover`.
    """
    lost = orphan.find(path)
    if lost is not None:
        same = (lost.holder["session"], lost.holder["host"]) == (session, host)
        return orphan.recover_orphan(lost, state_dir, force) if same else None
    one = find(path)
    if one is None or (one.session, one.host) != (session, host):
        return None
    return recover.recover(one.directory, force, hold=hold)
