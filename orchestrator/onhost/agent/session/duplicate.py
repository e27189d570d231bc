"""What the lock beside an install says, as lines of its session's journal, where some were lost."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..files import claim, files, probedir
from ..held import lock
from ..held.facts import ORIG, Facts, PlannedFile, beside
from ..held.holder import Holder
from ..held.journal import Record
from ..held.state import SessionState
from ..server import life

Read = Callable[[str], Optional[Holder]]

_MINE = ("session", "host", "since")
_NOT_STARTED = "how its server ran was lost with it, so it was not started"
# What keeps `make_records` from reading a lock: an older agent's says less.
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OSError)


def make_records(path: str, holder: Holder, read: Read = lock.read_trusted) -> List[Record]:
    """The journal that the lock stands for: all that may have happened is taken as if it had.

    What a revert does follows from the disk. The lock is one that `lock.read_trusted` gave, since
    a revert acts on its names, or another with `lock.read`, to be shown; they can only be of files
    below folders in which a lock of the same session stands. One of `UNREADABLE` is raised where
    it says too little, or names other places.
    """
    plan = holder["plan"]
    allowed = [os.path.dirname(one) for one in plan["locks"] if _is_same(one, holder, read)]
    if os.path.dirname(path) not in allowed:
        raise ValueError("the lock names other places than its own")
    for item in plan["files"]:
        if not _is_inside(item["path"], allowed):
            raise ValueError("`%s` is not beside the lock" % item["path"])
    dirs = {name: seen for name, seen in plan["dirs"].items() if _is_inside(name, allowed)}
    records = [_begin(holder), dict(plan, dirs=dirs, kind="intent", step="plan")]
    for item in plan["files"]:
        records.append({"kind": "intent", "step": "stage:new", "file": item["file"]})
    for item in plan["files"]:
        # These may be elsewhere, below `PYTHONPYCACHEPREFIX`.
        asides = holder["pycs"].get(item["file"])
        swap = {"kind": "intent", "file": item["file"]}
        if asides:
            records.append(dict(swap, step="swap:pyc", dirs=asides))
        records.append(dict(swap, step="swap:file"))
    if holder["server"] != "untouched":
        records.append({"kind": "intent", "step": "start:debug"})
    if holder["server"] == "stopped":
        records.append({"kind": "lost-server", "text": _NOT_STARTED})
    return records


def _begin(holder: Holder) -> Record:
    session, host = holder["session"], holder["host"]
    names = ("holder", "hostname", "machine", "boot_id", "since", "state_dir")
    named = {name: holder[name] for name in names}
    probe_dir = probedir.find_path(session, host)
    named.update(session=session, host=host, probe_dir=probe_dir)
    named.update(moved=holder.get("moved", False), taken_from=holder.get("taken_from"))
    return dict(named, kind="intent", step="begin")


def _is_same(path: str, holder: Holder, read: Read) -> bool:
    found = read(path) or {}
    return all(found.get(name) == holder[name] for name in _MINE)


def _is_inside(path: str, folders: List[str]) -> bool:
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return real == path and any(
        real == folder or real.startswith(folder.rstrip("/") + "/") for folder in folders
    )


def catch_up(session: SessionState, lost: bool = False) -> None:
    """Add to a session's journal what the lock says more of the same session.

    Where it was `lost` and came back from memory, that may be a moment older than what was done
    last. Else where names or bytes of ours stand beside the install that the journal lacks: every
    intent is durable before its effect, so that journal has lost lines, to a disk that reported
    what it did not do, to a copy of an older state. An intent taken as missing would let a revert
    remove a kept original as one that was never needed.
    """
    facts = session.facts
    if facts.unlocked or facts.ended or facts.sharing is not None:
        return
    for place, holder in _find_locks(session.directory, facts):
        try:
            records = make_records(place, holder)
            is_behind = lost or _is_behind(facts, Facts(records))
        except UNREADABLE:
            continue  # damaged as well, or an older agent's, which said less
        if is_behind:
            missing = [record for record in records if _is_missing(record, facts)]
            session.take_in([line for record in missing for line in _tell_better(record, session)])
            return


def _find_locks(directory: str, facts: Facts) -> Iterator[Tuple[str, Holder]]:
    folder, host = os.path.split(directory)
    name = os.path.basename(folder)
    begun: Dict[str, Any] = facts.begun or {"session": name, "host": host}
    probe_dir = begun.get("probe_dir") or probedir.find_path(name, host)
    for place in facts.locks or claim.follow(str(probe_dir)):
        holder = lock.read_trusted(place)
        if all(holder.get(key) == begun[key] for key in _MINE if key in begun):
            yield place, holder


def _is_missing(record: Record, facts: Facts) -> bool:
    """Whether the journal does not say it better: what the lock knows of a server is less."""
    if record["kind"] == "lost-server":
        return facts.server is None and not facts.lost_server
    known = {"begin": facts.begun, "start:debug": facts.started}
    return known.get(record["step"]) is None


def _tell_better(record: Record, session: SessionState) -> List[Record]:
    """The record, or where it takes the server for lost, what its own file knows of it."""
    if record["kind"] != "lost-server":
        return [record]
    try:
        server = life.read_server(session)
        if server is None:
            return [record]
        description = server["description"]
        main = {"pid": description["pid"], "start_time": description["start_time"]}
        described = {"ran": server["ran"], "main": main, "uid": description.get("uid")}
    except UNREADABLE:
        return [record]
    return [
        dict(described, kind="done", step="describe"),
        {"kind": "intent", "step": "stop:original"},
    ]


def _is_behind(facts: Facts, said: Facts) -> bool:
    return any(_has_names(one, facts, said) or _is_swapped(one, facts) for one in said.files)


def _has_names(one: PlannedFile, facts: Facts, said: Facts) -> bool:
    names: List[str] = []
    if one.file not in facts.staging:
        names += [one.new, one.orig, files.probe_path(one)]
    if one.file not in facts.pycs:
        for aside in said.pycs.get(one.file, ()):
            names += [
                beside(os.path.join(aside["dir"], item["name"]), ORIG) for item in aside["files"]
            ]
    return any(map(os.path.lexists, names))


def _is_swapped(one: PlannedFile, facts: Facts) -> bool:
    if one.file in facts.swapping:
        return False
    try:
        return files.look(one.path).sha256 == one.after_sha256
    except OSError:
        return True  # an intent too many does no harm
