"""What the lock beside an install says, as lines of its session's journal, where some were lost."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Tuple

from ..files import claim, files, probedir
from ..held import journal, lock
from ..held.facts import ORIG, Facts, PlannedFile, beside
from ..held.journal import Record
from ..held.state import JOURNAL

_MINE = ("session", "host", "since")


def make_records(path: str, holder: lock.Holder) -> List[Record]:
    """The journal that the lock stands for: all that may have happened is taken as if it had.

    What a revert does follows from the disk. Whoever can write beside the lock may have written
    the lock too, so it can only name files where a lock of the same session stands; `ValueError`
    where it does not.
    """
    plan = holder["plan"]
    allowed = [os.path.dirname(one) for one in plan["locks"] if _is_same(one, holder)]
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
        asides = [a for a in holder["pycs"].get(item["file"], ()) if _may_move(path, a, allowed)]
        swap = {"kind": "intent", "file": item["file"]}
        if asides:
            records.append(dict(swap, step="swap:pyc", dirs=asides))
        records.append(dict(swap, step="swap:file"))
    if holder["server"] != "untouched":
        records.append({"kind": "intent", "step": "start:debug"})
    return records


def _begin(holder: lock.Holder) -> Record:
    session, host = holder["session"], holder["host"]
    names = ("holder", "hostname", "machine", "boot_id", "since", "state_dir")
    named = {name: holder[name] for name in names}
    probe_dir = probedir.find_path(session, host)
    return dict(named, kind="intent", step="begin", session=session, host=host, probe_dir=probe_dir)


def _is_same(path: str, holder: lock.Holder) -> bool:
    found = lock.read(path) or {}
    return all(found.get(name) == holder[name] for name in _MINE)


def _is_inside(path: str, folders: List[str]) -> bool:
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return real == path and any(
        real == folder or real.startswith(folder.rstrip("/") + "/") for folder in folders
    )


def _may_move(path: str, aside: Record, allowed: List[str]) -> bool:
    """A cache below `PYTHONPYCACHEPREFIX` is elsewhere: only our own lock may name that."""
    return _is_inside(aside["dir"], allowed) or os.stat(path).st_uid == os.geteuid()


def supplement(directory: str) -> None:
    """Add to a session's journal what the lock says more of the same session.

    One that came back from memory may be a moment older than what was done last.
    """
    path = os.path.join(directory, JOURNAL)
    facts = Facts(journal.read(path))
    for place, holder in _find_locks(directory, facts):
        _append(path, facts, make_records(place, holder))
        return


def catch_up(directory: str) -> None:
    """The same where names or bytes of ours stand beside the install that the journal lacks.

    Every intent is durable before its effect, so that journal has lost lines: to a disk that
    reported what it did not do, to a copy of an older state. An intent taken as missing would let
    a revert remove a kept original as one that was never needed.
    """
    path = os.path.join(directory, JOURNAL)
    facts = Facts(journal.read(path))
    if facts.unlocked or facts.ended or facts.sharing is not None:
        return
    for place, holder in _find_locks(directory, facts):
        try:
            records = make_records(place, holder)
            is_behind = _is_behind(facts, Facts(records))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # damaged as well, or an older agent's, which said less
        if is_behind:
            _append(path, facts, records)
            return


def _find_locks(directory: str, facts: Facts) -> Iterator[Tuple[str, lock.Holder]]:
    folder, host = os.path.split(directory)
    name = os.path.basename(folder)
    begun: Dict[str, Any] = facts.begun or {"session": name, "host": host}
    probe_dir = begun.get("probe_dir") or probedir.find_path(name, host)
    for place in facts.locks or claim.follow(str(probe_dir)):
        holder = lock.read(place) or {}
        if all(holder.get(key) == begun[key] for key in _MINE if key in begun):
            yield place, holder


def _append(path: str, facts: Facts, records: List[Record]) -> None:
    opened = journal.Journal(path)
    try:
        for record in records[1:] if facts.begun is not None else records:
            if record["step"] != "start:debug" or facts.started is None:
                opened.append(record)
    finally:
        opened.close()


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
    return one.file not in facts.swapping and files.look(one.path).sha256 == one.after_sha256
