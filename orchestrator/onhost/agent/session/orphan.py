"""A session of which only the lock beside the install is left, and what can be undone from that."""

from __future__ import annotations

import glob
import json
import os
from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from ..files import claim, files, probedir
from ..held import journal, lease, lock, machine, rebuild, untrusted
from ..held.facts import Facts
from ..held.holder import Holder
from ..held.journal import Record
from ..held.state import JOURNAL, session_dir
from ..proc import procfs
from ..refusal import Refusal
from ..server.life import LIVES
from . import duplicate, recover, serving

Value = Dict[str, Any]
# Who ends a session that no revert from here does: the user whose it is, its guard, whoever sees
# its processes, somebody by hand.
BY_USER, BY_GUARD, THERE, BY_HAND = "user", "guard", "there", "hand"
UNREADABLE = "what the lock says of its files cannot be read"


class Orphan(NamedTuple):
    """A lock of ours whose session's directory is gone. `why_not` says why it cannot be undone from
    it, `ends` who does it then.
    """

    path: str
    holder: Holder
    directory: str
    records: List[Record]
    ends: Optional[str] = None
    why_not: str = ""

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
    for path in find_locks(package_dirs):
        one = find(path)
        if one is not None:
            found.setdefault((one.holder["session"], one.holder["host"]), one)
    return [found[key] for key in sorted(found)]


def find_locks(package_dirs: Iterable[str]) -> Dict[str, bool]:
    """Where locks may stand, and whether somebody named the package there."""
    named = [path for one in package_dirs for path in lock.find_paths(os.path.abspath(one))]
    found = dict.fromkeys(named, True)
    for probe_dir in sorted(glob.glob(glob.escape(probedir.find_path("", "")[:-1]) + "*")):
        for path in claim.follow(probe_dir):
            found.setdefault(path, False)
    return found


def find(path: str) -> Optional[Orphan]:
    """The orphan that this lock is of; `None` where it is none, or not for us to say.

    None it is where the session's directory is there or cannot be looked for, where the session is
    of another machine or of processes that are not seen from here, or where the lock is another
    user's or says nothing that can be taken in.
    """
    holder = lock.read_trusted(path)
    if not holder:
        return None
    try:
        directory = session_dir(holder["state_dir"], holder["session"], holder["host"])
        os.lstat(os.path.join(directory, JOURNAL))
    except FileNotFoundError:
        pass
    except (OSError, Refusal):
        return None
    else:
        return None
    return _judge(path, holder, directory) if is_of_here(holder) else None


def is_of_here(holder: Holder) -> bool:
    """Whether the session is of this machine, and of processes that are seen from here."""
    if machine.find_other(dict(holder, machine=holder.get("machine", ""))) is not None:
        return False
    same_boot = holder.get("boot_id") == lease.read_boot_id()
    return not same_boot or holder.get("processes") == lease.read_process_space()


def _judge(path: str, holder: Holder, directory: str) -> Orphan:
    try:
        records = duplicate.make_records(path, holder)
        Facts(records)
    except duplicate.UNREADABLE:
        return Orphan(path, holder, directory, [], BY_HAND, UNREADABLE)
    guard = _guard_of(holder)
    if guard is not None and lease.is_alive(guard):
        why_not = "its guard (process %d) is about to undo it" % guard.pid
        return Orphan(path, holder, directory, records, BY_GUARD, why_not)
    return Orphan(path, holder, directory, records)


def _guard_of(holder: Holder) -> Optional[lease.Process]:
    guard = holder["guard"]
    if guard is None or holder["boot_id"] != lease.read_boot_id():
        return None
    return lease.Process(guard["pid"], guard["start_time"])


def recover_orphan(one: Orphan, state_dir: str, force: bool = False) -> Value:
    """Put back what can be proven from beside the install; value as of `recover`.

    The session gets a directory again, in this state directory; where it began in another the lock
    says so, and whoever had it undone finds what is left of it. How the server ran is not known any
    more: a debug life is ended, no original is started, and `report` says so, now and whenever it
    has to be tried again. Refuses with `busy` while its guard is at it, else with `missing` where
    the lock does not say enough, or is gone.
    """
    if one.ends is not None:
        code = "busy" if one.ends == BY_GUARD else "missing"
        raise Refusal(code, "%s: %s" % (describe(one), one.why_not), path=one.path, ended=False)
    one = _move(one, state_dir)
    taken_from = one.holder.get("taken_from")
    text = "its directory was lost: undone from `%s`" % one.path
    if taken_from is not None:
        text = "taken over from the machine `%s`: undone from `%s`" % (taken_from, one.path)
    # A process with its mark would be one of the other machine, as of a container beside us.
    debug = _find_debug(one) if taken_from is None else []
    records = [one.records[0], {"kind": "report", "by": "", "text": text}, *one.records[1:]]
    if len(debug) == 1:  # one that is known is asked to end before it is killed
        main = {"pid": debug[0].pid, "start_time": debug[0].start_time}
        records.append(dict(main, kind="done", step="start:debug"))
    lines = b"".join(journal.seal(dict(r, n=n, at=0)) for n, r in enumerate(records, 1))
    lives = json.dumps([life.argv for life in debug]).encode("ascii")
    with files.refusing("the session's directory could not be made again"):
        rebuild.give_back(one.directory, {JOURNAL: lines, LIVES: lives}, lambda: _stands(one))
    return recover.recover(one.directory, force)


def _move(one: Orphan, state_dir: str) -> Orphan:
    holder = one.holder
    if os.path.realpath(state_dir) == os.path.realpath(holder["state_dir"]):
        return one
    directory = session_dir(state_dir, holder["session"], holder["host"])
    if not _stands(one):  # `give_back` will say so
        return one
    moved = dict(holder, state_dir=state_dir, moved=True)
    try:
        for path in holder["plan"]["locks"]:
            lock.update(path, moved)
    except OSError:  # then where the lock says, or nobody would find it
        return one
    return one._replace(directory=directory, holder=moved)


def _stands(one: Orphan) -> bool:
    """Whether the lock still stands, and nobody has the session undone in another place by now."""
    found = lock.read_trusted(one.path)
    return lock.is_mine(found, one.holder) and found["state_dir"] == one.holder["state_dir"]


def describe(one: Orphan) -> str:
    """What it is, in words."""
    return "session `%s` holds `%s`, but its directory `%s` is gone" % (
        one.holder.get("session"),
        os.path.dirname(one.path),
        untrusted.plain(one.directory),
    )


def _find_debug(one: Orphan) -> List[Debug]:
    """Its debug life by the mark that it carries: the outermost processes."""
    mark = "%s/%s" % (one.holder["session"], one.holder["host"])
    marked = serving.find_marked(mark)
    pids = {one.pid for one in marked}
    mains = [one for one in marked if one.ppid not in pids]
    return [
        Debug(m.pid, m.start_time, procfs.parse_strings(procfs.read_cmdline(m.pid))) for m in mains
    ]
