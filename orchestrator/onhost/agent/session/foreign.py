"""Locks beside an install of sessions that nobody here can undo: whose they are, and until when.

Another user's state directory is closed to us, but for root, who does not act on another's word
either. What can be seen of such a session all the same is its lock, the install, and whether its
guard runs: that says who holds the install, how the files are now, and who ends it.
"""

from __future__ import annotations

import os
import time
from typing import Collection, Dict, Iterable, List, NamedTuple, Optional, Tuple

from ..files import claim
from ..held import lease, lock, machine, untrusted
from ..held.facts import Facts
from ..held.holder import Holder
from ..held.state import JOURNAL, session_dir
from ..proc import procfs
from ..refusal import Refusal
from . import duplicate, orphan
from .orphan import BY_HAND, BY_USER, THERE

_UNREADABLE = "what the lock says cannot be read"
_is_time = untrusted.maybe(untrusted.is_wall_time)
THEIRS = "the lock is another user's (%s), who alone can undo it"
_UNSEEN = "its processes are not seen from here, as those of a container are not"
_UNREACHED = "its directory `%s` cannot be looked at"


class Foreign(NamedTuple):
    """Such a lock. `why_not` says why no revert from here ends it, `ends` who does; `holder` is
    empty where what it says cannot be read.
    """

    path: str
    holder: Holder
    uid: int
    ends: str
    why_not: str

    @property
    def user(self) -> Optional[str]:
        """Whose it is, where it is another user's: a name, or a number that has none."""
        return untrusted.plain(procfs.user_name(self.uid)) if self.ends == BY_USER else None

    @property
    def facts(self) -> Facts:
        """What the lock says of files, to be shown and for nothing else."""
        try:
            return Facts(duplicate.make_records(self.path, self.holder, lock.read))
        except duplicate.UNREADABLE:
            return Facts()


class Term(NamedTuple):
    """How long a session's right lasts, as it is seen from outside.

    `until` is the wall time of its end by its last word, null for one that is kept. `is_over`
    says that it cannot have been renewed since; `guard` is as in `status`.
    """

    until: Optional[float]
    is_over: bool
    guard: str


def name_user(uid: int) -> str:
    """A user of this host, by name and number."""
    name = untrusted.plain(procfs.user_name(uid))
    return "uid %d" % uid if name == str(uid) else "%s, uid %d" % (name, uid)


def find_all(package_dirs: Iterable[str], told: Collection[str]) -> List[Foreign]:
    """Every one beside these packages, but for sessions of the names that are `told` of already."""
    found: Dict[Tuple[str, str, str], Foreign] = {}
    for package in package_dirs:
        for path in lock.find_paths(os.path.abspath(package)):
            one = find(path)
            if one is None or one.holder.get("session") in told:
                continue
            # A tree of links has two locks of one session; two that cannot be read are two.
            names = (one.holder.get("session", ""), one.holder.get("host", ""))
            found.setdefault((*names, "" if one.holder else path), one)
    return [found[key] for key in sorted(found)]


def find(path: str) -> Optional[Foreign]:
    """The session that this lock is of; `None` where it is none of these, or another machine's."""
    seen = lock.look(path)
    if seen is None:
        return None
    if not seen.holder:
        return Foreign(path, {}, seen.uid, BY_HAND, _UNREADABLE)
    holder = seen.holder
    if machine.find_other(dict(holder, machine=holder.get("machine", ""))) is not None:
        return None
    if seen.uid != os.geteuid():
        return Foreign(path, holder, seen.uid, BY_USER, THEIRS % name_user(seen.uid))
    if not orphan.is_of_here(holder):
        return Foreign(path, holder, seen.uid, THERE, _UNSEEN)
    return _find_unreached(path, seen)


def _find_unreached(path: str, seen: lock.Seen) -> Optional[Foreign]:
    """Ours and of here: told of elsewhere, unless nobody can look where it is."""
    names = seen.holder["session"], seen.holder["host"]
    try:
        directory = session_dir(seen.holder["state_dir"], *names)
        is_ours = os.lstat(directory).st_uid in (os.geteuid(), 0)
        os.lstat(os.path.join(directory, JOURNAL))
    except FileNotFoundError:
        return None
    except (OSError, Refusal):
        is_ours, directory = False, os.path.join(seen.holder["state_dir"], "sessions", *names)
    if is_ours:
        return None
    return Foreign(path, seen.holder, seen.uid, BY_HAND, _UNREACHED % untrusted.plain(directory))


def read_term(path: str, holder: Holder) -> Term:
    """What the lease says where we may look at it, else the lock, its age and its guard."""
    if machine.find_other(holder) is not None:
        return Term(holder.get("until"), False, "unknown")
    guard = _look_for_guard(holder)
    held = None
    if "session" in holder:
        held = lease.read(session_dir(holder["state_dir"], holder["session"], holder["host"]))
    if held is not None:
        until = claim.find_end(held)
        # Its deadline may be on another boot's clock, or whatever another user wrote there.
        is_now = held.boot_id == lease.read_boot_id() and _is_time(until)
        return Term(until if is_now else holder.get("until"), _is_over(held), guard)
    deadline_s = holder.get("deadline_s")
    if deadline_s is None:
        return Term(holder.get("until"), False, guard)
    is_past = deadline_s < lease.now_s()
    silent = guard == "dead" and _is_silent(path, holder)
    taken = deadline_s == lease.OVER_S or holder.get("boot_id") != lease.read_boot_id()
    return Term(holder.get("until"), taken or (is_past and silent), guard)


def _is_over(held: lease.Lease) -> bool:
    """Whether its time ran out, whoever may be undoing it right now."""
    if held.deadline_s is None:
        return held.ended
    return held.boot_id != lease.read_boot_id() or held.deadline_s < lease.now_s()


def _is_silent(path: str, holder: Holder) -> bool:
    """Whether nobody has renewed it for longer than somebody could be there who does."""
    limit_s = holder.get("limit_s")
    try:
        return limit_s is not None and time.time() - os.lstat(path).st_mtime > limit_s
    except OSError:
        return False


def _look_for_guard(holder: Holder) -> str:
    """Whether its guard runs; `unknown` where processes of others are not shown."""
    guard = holder.get("guard")
    if guard is None or holder.get("boot_id") != lease.read_boot_id():
        return "dead"
    if holder.get("processes") != lease.read_process_space():
        return "unknown"
    if lease.is_alive(lease.Process(guard["pid"], guard["start_time"])):
        return "alive"
    return "unknown" if procfs.read_stat(1) is None else "dead"


def describe(one: Foreign) -> str:
    """What it is and who ends it, in words."""
    folder = untrusted.plain(os.path.dirname(one.path))
    if not one.holder:
        return "`%s` is locked, but `%s` cannot be read" % (folder, untrusted.plain(one.path))
    term = read_term(one.path, one.holder)
    who = (one.holder["session"], one.holder["holder"], folder, show_time(one.holder["since"]))
    said = "session `%s` of %s holds `%s` since %s" % who
    return "%s%s: %s" % (said, show_end(term), one.why_not)


def refuse(path: str, session: str, host: str) -> None:
    """Refuse with `missing` to undo such a session of these names, where the lock is of one."""
    one = find(path)
    if one is not None and (one.holder.get("session"), one.holder.get("host")) == (session, host):
        raise Refusal("missing", describe(one), path=path, ended=False)


def show_end(term: Term) -> str:
    """When it ends, as the end of a sentence."""
    if term.is_over:
        return ", its lease is over"
    if not term.until:
        return ", kept without an end"
    past = " by its last word" if term.until < time.time() else ""
    return " until %s%s" % (show_time(term.until), past)


def show_time(seconds: float) -> str:
    """A wall-clock time as everybody can read it."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
