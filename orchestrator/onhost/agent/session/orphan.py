"""A session of which only the lock beside the install is left, and what can be undone from that."""

from __future__ import annotations

import glob
import os
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional

from ..files import claim, probedir
from ..held import journal, lease, lock, machine, rebuild
from ..held.facts import Facts
from ..held.journal import Record
from ..held.state import JOURNAL, session_dir
from ..proc import procfs
from ..refusal import Refusal
from . import duplicate, recover

Value = Dict[str, Any]


class Orphan(NamedTuple):
    """A lock whose session's directory is gone. `why_not` says why it cannot be undone from it."""

    path: str
    holder: lock.Holder
    directory: str
    records: List[Record]
    why_not: str

    @property
    def facts(self) -> Facts:
        """What the lock says, as if it stood in a journal."""
        return Facts(self.records)


class Debug(NamedTuple):
    """A process of a debug life; its command line may hold secrets."""

    pid: int
    start_time: int
    argv: List[str]


def find_all(package_dirs: Iterable[str] = ()) -> List[Orphan]:
    """Every orphan of this machine that is found beside these packages or through `TMPDIR`."""
    found: Dict[Any, Orphan] = {}
    for path in dict.fromkeys([*_beside(package_dirs), *_pointed_at()]):
        one = find(path)
        if one is not None:
            found.setdefault((one.holder["session"], one.holder["host"]), one)
    return [found[key] for key in sorted(found)]


def _beside(package_dirs: Iterable[str]) -> Iterator[str]:
    for package_dir in package_dirs:
        yield from lock.find_paths(os.path.abspath(package_dir))


def _pointed_at() -> Iterator[str]:
    for probe_dir in sorted(glob.glob(glob.escape(probedir.find_path("", "")[:-1]) + "*")):
        yield from claim.follow(probe_dir)


def find(path: str) -> Optional[Orphan]:
    """The orphan that this lock is of; `None` where it is none, or not for us to say.

    None it is where the session's directory is there or cannot be looked for, or where the session
    is of another machine or of processes that are not seen from here.
    """
    holder = lock.read(path)
    if not holder:
        return None
    try:
        directory = session_dir(holder["state_dir"], holder["session"], holder["host"])
        os.lstat(os.path.join(directory, JOURNAL))
    except FileNotFoundError:
        pass
    except (OSError, KeyError, TypeError, Refusal):
        return None
    else:
        return None
    if machine.find_other(dict(holder, machine=holder.get("machine", ""))) is not None:
        return None
    same_boot = holder.get("boot_id") == lease.read_boot_id()
    if same_boot and holder.get("processes") != lease.read_process_space():
        return None
    return _judge(path, holder, directory)


def _judge(path: str, holder: lock.Holder, directory: str) -> Orphan:
    guard = _guard_of(holder)
    try:
        records = duplicate.make_records(path, holder)
        Facts(records)
    except (KeyError, TypeError, ValueError, AttributeError):
        return Orphan(path, holder, directory, [], "what the lock says of its files cannot be read")
    if guard is not None and lease.is_alive(guard):
        why_not = "its guard (process %d) is about to undo it" % guard.pid
        return Orphan(path, holder, directory, records, why_not)
    return Orphan(path, holder, directory, records, "")


def _guard_of(holder: lock.Holder) -> Optional[lease.Process]:
    guard = holder.get("guard")
    if holder.get("boot_id") != lease.read_boot_id() or not isinstance(guard, dict):
        return None
    return lease.Process(int(guard["pid"]), int(guard["start_time"]))


def recover_orphan(one: Orphan, force: bool = False) -> Value:
    """Put back what can be proven from beside the install; value as of `recover`.

    How the server ran is not known any more: a debug life is ended, no original is started, and
    `report` says so. `lost` is then there, with the command lines of the debug life. Refuses with
    `busy` while its guard is at it, else with `missing` where the lock does not say enough.
    """
    if one.why_not:
        code = "busy" if one.records else "missing"
        raise Refusal(code, "%s: %s" % (describe(one), one.why_not), path=one.path, ended=False)
    debug = _find_debug(one)
    records = list(one.records)
    if len(debug) == 1:  # one that is known is asked to end before it is killed
        main = {"pid": debug[0].pid, "start_time": debug[0].start_time}
        records.append(dict(main, kind="done", step="start:debug"))
    lines = b"".join(journal.seal(dict(r, n=n, at=0)) for n, r in enumerate(records, 1))
    rebuild.give_back(one.directory, {JOURNAL: lines})
    value = recover.recover(one.directory, force)
    value["report"] = [*value["report"], "its directory was lost: undone from `%s`" % one.path]
    if one.holder["server"] == "stopped":
        value["lost"] = [life.argv for life in debug]
        value["report"].append("how its server ran was lost with it, so it was not started")
    return value


def describe(one: Orphan) -> str:
    """What it is, in words."""
    return "session `%s` holds `%s`, but its directory `%s` is gone" % (
        one.holder.get("session"),
        os.path.dirname(one.path),
        one.directory,
    )


def _find_debug(one: Orphan) -> List[Debug]:
    """Its debug life by the mark that it carries: the outermost processes."""
    mark = "%s/%s" % (one.holder["session"], one.holder["host"])
    every = procfs.read_all()
    marked = {p for p in every if (procfs.read_environ(p) or {}).get("SGLDBG_SESSION") == mark}
    mains = [every[p] for p in sorted(marked) if every[p].alive and every[p].ppid not in marked]
    return [
        Debug(m.pid, m.start_time, procfs.parse_strings(procfs.read_cmdline(m.pid))) for m in mains
    ]
