"""Ends for a machine that never comes back what it left patched in an install that others share.

The lock beside the install is all that this machine has of such a session. It is taken over only
when somebody says that its host is gone, and only after it gave no sign of life for longer than
its lease and all that follows from it can last, on our own clock. From then on it is a session of
this machine whose directory was lost, and ends like any of these.
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

from ..files import shared
from ..held import lease, lock, machine, sight, untrusted
from ..held.facts import Facts
from ..held.holder import Holder
from ..held.state import JOURNAL, session_dir
from ..refusal import Refusal
from . import duplicate, foreign, moved, orphan, recover

Value = Dict[str, Any]


class Abroad(NamedTuple):
    """A lock that another machine holds in an install which is seen from here as well.

    `holder` is what it says, with the paths under which this machine sees the same files.
    """

    path: str
    seen: lock.Seen
    holder: Holder

    @property
    def names(self) -> Sequence[str]:
        """Session and host, as the inventory that began it calls them."""
        return self.holder["session"], self.holder["host"]

    @property
    def facts(self) -> Facts:
        """What it says of files, as far as it can be acted upon."""
        with contextlib.suppress(*duplicate.UNREADABLE):
            return Facts(duplicate.make_records(self.path, self.holder))
        return Facts()


def find(path: str) -> Optional[Abroad]:
    """The session of another machine that this lock is of; `None` where it is none."""
    seen = lock.look(path)
    if seen is None or not seen.holder:
        return None
    named = dict(seen.holder, machine=seen.holder.get("machine", ""))
    if machine.find_other(named) is None:
        return None
    return Abroad(path, seen, _relocate(seen.holder, path))


def _relocate(holder: Holder, path: str) -> Holder:
    """What a lock says that was mounted in another place over there: it stands at `path` here.

    Of one that has a second lock, as a tree of links has, nobody knows which of them this is: what
    it says stays as it is, and then names other places than its own.
    """
    plan = holder.get("plan")
    if plan is None or path in plan["locks"] or len(plan["locks"]) != 1:
        return holder
    old, new = os.path.dirname(plan["locks"][0]), os.path.dirname(path)

    def move(name: str) -> str:
        return new + name[len(old) :] if (name + "/").startswith(old + "/") else name

    moved_plan = dict(
        plan,
        root=os.path.dirname(move(os.path.join(plan["root"], plan["package"]))),
        files=[dict(f, path=move(f["path"]), shown=move(f["shown"])) for f in plan["files"]],
        dirs={move(name): seen for name, seen in plan["dirs"].items()},
        locks=[path],
    )
    pycs = {
        name: [dict(aside, dir=move(aside["dir"])) for aside in asides]
        for name, asides in holder["pycs"].items()
    }
    return dict(holder, plan=moved_plan, pycs=pycs)


def find_all(package_dirs: Iterable[str] = ()) -> List[Abroad]:
    """Every one beside these packages, by session and host.

    Not through `TMPDIR`: what points to a lock there was left by this machine.
    """
    found: Dict[Any, Abroad] = {}
    for package in package_dirs:
        for path in lock.find_paths(os.path.abspath(package)):
            one = find(path)
            if one is not None:
                found.setdefault(tuple(one.names), one)
    return [found[key] for key in sorted(found)]


def find_dir(state_dir: str, session: str, host: str) -> str:
    """Where the session of these names is that this machine may end."""
    taken = session_dir(sight.own_dir(state_dir), session, host)
    is_here = os.path.exists(os.path.join(taken, JOURNAL))
    return taken if is_here else session_dir(state_dir, session, host)


def list_roots(state_dir: str) -> List[str]:
    """The directories in which sessions of this machine are: its own, then those it took over."""
    return [state_dir, sight.own_dir(state_dir)]


def describe(one: Abroad) -> str:
    """Who holds the install from where, since and until when."""
    until = one.holder.get("until")
    return "session `%s` of %s holds `%s` from `%s` (machine `%s`) since %s%s" % (
        one.holder["session"],
        one.holder["holder"],
        untrusted.plain(os.path.dirname(one.path)),
        one.holder["host"],
        one.holder["hostname"],
        foreign.show_time(one.holder["since"]),
        ", kept without an end"
        if until is None
        else " until at least %s" % foreign.show_time(until),
    )


def refuse_live(one: Abroad, state_dir: str) -> None:
    """Refuse with `busy` as long as its machine might be alive, with `missing` what is not ours."""
    if not one.seen.is_trusted:
        why = foreign.THEIRS % foreign.name_user(one.seen.uid)
        raise Refusal("missing", "%s: %s" % (describe(one), why), ended=False)
    quiet_s = sight.watch(state_dir, one.path, one.seen.stamp)
    limit_s = one.holder.get("limit_s")
    if limit_s is None:
        why = "it was kept, so only that machine can end it, or somebody by hand"
        if "limit_s" not in one.holder:
            why = "its agent is too old to say when it is over"
        raise Refusal("busy", "%s: %s" % (describe(one), why))
    if quiet_s < limit_s:
        message = "%s: no sign of life for %d s seen from here, it may be taken over after %d s" % (
            describe(one),
            quiet_s,
            math.ceil(limit_s),
        )
        raise Refusal("busy", message, left_s=limit_s - quiet_s)


def take_over(one: Abroad, state_dir: str, force: bool = False) -> Value:
    """Undo what a machine left that is gone for good; value as of `recover`.

    Refuses with `busy` while it might be alive, or another machine is quicker. Its server is not
    started: that is of the other machine. Should that one come back after all, it finds its files
    as they were, or the lock in other hands, and does nothing to them.
    """
    _refuse_elsewhere(one)
    refuse_live(one, state_dir)
    facts = one.facts
    if facts.plan is None:
        message = "%s: %s" % (describe(one), orphan.UNREADABLE)
        raise Refusal("missing", message, ended=False)
    try:
        for path in sorted({*facts.locks, one.path}):
            _hand_over(path, one, state_dir)
    except OSError as error:
        message = "%s: the lock cannot be taken over: %s" % (describe(one), error.strerror)
        raise Refusal("busy", message) from None
    sight.forget(state_dir, one.path)
    return _end_taken(one.path, state_dir, force)


def _refuse_elsewhere(one: Abroad) -> None:
    """Refuse a tree of links that is mounted in another place: its two locks cannot be told apart.

    At once, since waiting does not better it.
    """
    plan = one.holder.get("plan")
    if plan is not None and len(plan["locks"]) > 1 and one.path not in plan["locks"]:
        where = " and ".join("`%s`" % untrusted.plain(os.path.dirname(p)) for p in plan["locks"])
        message = "%s: a tree of links is only undone where it is mounted as over there: %s"
        raise Refusal("missing", message % (describe(one), where), ended=False)


def _hand_over(path: str, one: Abroad, state_dir: str) -> None:
    seen = lock.look(path)
    if seen is None or not seen.is_trusted or find(path) is None:
        return
    if (seen.holder["session"], seen.holder["host"]) != tuple(one.names):
        return
    mine = dict(
        _relocate(seen.holder, path),
        hostname=machine.read_name(),
        machine=machine.read_id(),
        boot_id=lease.read_boot_id(),
        processes=lease.read_process_space(),
        guard=None,
        server="untouched",  # that of the other machine, which only that one can start
        state_dir=sight.own_dir(state_dir),
        moved=True,
        taken_from=seen.holder["hostname"],
    )
    if not lock.hand_over(path, seen, mine):
        raise Refusal("busy", "%s: somebody else takes it over" % describe(one))


def _end_taken(path: str, state_dir: str, force: bool) -> Value:
    found = orphan.find(path)
    if found is None:
        raise Refusal("missing", "nothing is left that `%s` would lead to" % path, ended=True)
    return orphan.recover_orphan(found, sight.own_dir(state_dir), force)


def recover_by_lock(
    path: str,
    names: Sequence[str],
    state_dir: str,
    force: bool,
    gone: Sequence[str],
    hold: Optional[recover.Hold] = None,
) -> Optional[Value]:
    """Undo the session of these names that this lock alone leads to, as `moved.recover_by_lock`.

    One of another machine is taken over where its host is named as `gone`, else `elsewhere`; one
    that nobody here can undo is `missing`.
    """
    one = find(path)
    if one is None:
        value = moved.recover_by_lock(path, names[0], names[1], state_dir, force, hold)
        if value is None:
            foreign.refuse(path, names[0], names[1])
        return value
    if tuple(one.names) != tuple(names):
        return None
    if one.holder["host"] not in gone:
        raise Refusal("elsewhere", "%s: it ends there" % describe(one))
    return take_over(one, state_dir, force)


def recover_member(
    directory: str,
    state_dir: str,
    force: bool = False,
    gone: Sequence[str] = (),
    here: bool = False,
    hold: Optional[recover.Hold] = None,
) -> Value:
    """`recover`, for a host that shares its install also where its owner is named as `gone`.

    First this host lets go of the install, then the owner's part is undone in its place, then this
    host reads the originals and starts its own server.
    """
    value = recover.recover(directory, force, here=here, hold=hold)
    path = shared.find_lock(directory) if value["left"] else None
    if path is None:
        return value
    try:
        owner = _end_owner(path, state_dir, force, gone)
    except Refusal as refusal:
        value["left"].append(refusal.message)
        return value
    if owner is None:
        return value
    again = recover.recover(directory, force, here=here, hold=hold)
    again["report"] = [*value["report"], *owner["report"]]
    again["left"] += owner["left"]
    return again


def _end_owner(path: str, state_dir: str, force: bool, gone: Sequence[str]) -> Optional[Value]:
    one = find(path)
    if one is not None:
        return take_over(one, state_dir, force) if one.holder["host"] in gone else None
    holder = lock.read_trusted(path)
    if not holder.get("taken_from"):
        return None
    # Taken over before, and not finished.
    directory = find_dir(state_dir, holder["session"], holder["host"])
    if os.path.exists(os.path.join(directory, JOURNAL)):
        return recover.recover(directory, force)
    return _end_taken(path, state_dir, force)
