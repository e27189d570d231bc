"""From a plan to staged files: the lock, and whoever held it before."""

from __future__ import annotations

import glob
import os
from typing import Any, Dict, List, Optional

from ..files import claim, files, plan, shared, swap
from ..held import journal, lease, lock, machine
from ..held.facts import Facts
from ..held.holder import Holder
from ..held.state import JOURNAL, SessionState, session_dir
from ..refusal import Refusal
from . import foreign, orphan, recover

Args = Dict[str, Any]


def stage(session: SessionState, args: Args, raw: bytes) -> Args:
    """Plan, lock and stage; whatever fails, the install is as it was.

    A session whose time is over and that holds a lock of ours is undone first, and its report
    handed on under `recovered`. Where another host of the same session has the install already,
    nothing is staged and `shared_with` names it.
    """
    with session.locked():
        if session.facts.files or session.facts.sharing:
            raise Refusal("exists", "this session has staged its files already")
        contents = _split(args["files"], raw)
        package_dir = os.path.join(os.path.abspath(args["root"]), args["package"])
        paths = lock.find_paths(package_dir)
        recovered: List[Args] = []
        owner = shared.find_owner(session, paths)
        if owner is None:
            try:
                recovered += _recover_expired(session, paths)
                recovered += _file_reverted(session, package_dir)
                staged = _stage(session, args, contents)
            except Refusal:
                owner = shared.find_owner(session, paths)  # it was quicker
                if owner is None:
                    raise
        if owner is not None:
            shared.join(session, owner, args, paths)
            return {"files": [], "recovered": recovered, "shared_with": owner}
    return {"files": staged, "recovered": recovered, "shared_with": None}


def _stage(session: SessionState, args: Args, contents: Dict[str, bytes]) -> List[Args]:
    plan.journal_plan(session, args, plan.make_plan(args))
    try:
        _take_locks(session)
        return swap.stage(session, contents)
    except Exception:
        _undo_stage(session)
        raise


def _split(items: List[Args], raw: bytes) -> Dict[str, bytes]:
    contents, at = {}, 0
    for item in items:
        contents[item["file"]] = raw[at : at + item["size"]]
        at += item["size"]
    return contents


def _take_locks(session: SessionState) -> None:
    holder = claim.make(session, session.check())
    for path in session.facts.locks:
        with files.refusing("the install cannot be locked"), session.step("lock", path=path):
            try:
                lock.take(path, holder)
            except FileExistsError:
                found = lock.read(path)
                if not lock.is_mine(found, holder):
                    raise _locked(path, found) from None
    claim.point((session.facts.begun or {})["probe_dir"], session.facts.locks)


def _undo_stage(session: SessionState) -> None:
    """Take back what a failed stage left and forget its plan, unless something resists."""
    reports = swap.revert(session)
    if session.facts.is_clean and not any(report["state"] == "failed" for report in reports):
        recover.unlock(session)
        session.note("undone")


def _recover_expired(session: SessionState, paths: List[str]) -> List[Args]:
    """End the session that holds a lock of ours, if its time is over and we may read it."""
    recovered = []
    for path in paths:
        found = lock.read(path)
        if found is None or lock.is_mine(found, session.lock_holder()):
            continue
        lost, directory = orphan.find(path), _find_abandoned(lock.read_trusted(path))
        try:
            if lost is not None:
                value = orphan.recover_orphan(lost, session.state_dir)
            elif directory is not None:
                value = recover.recover(directory)
            else:
                raise _locked(path, found)
        except Refusal:
            raise _locked(path, found) from None
        if value["left"]:
            raise _locked(path, found)
        recovered.append({"session": found["session"], "host": found["host"], **value})
    return recovered


def _find_abandoned(found: Holder) -> Optional[str]:
    """The directory of the lock's session, where it is this host's and its lease ran out.

    What that directory's journal says will be done: so it must be one that a trusted lock names.
    """
    if found.get("hostname") != os.uname().nodename:
        return None
    try:
        directory = session_dir(found["state_dir"], found["session"], found["host"])
    except (KeyError, Refusal):
        return None
    held = lease.read(directory)
    if held is None or held.is_live() or held.is_kept():
        return None
    return directory if os.access(os.path.join(directory, JOURNAL), os.R_OK | os.W_OK) else None


def _locked(path: str, found: Optional[Holder]) -> Refusal:
    found = found or {}
    folder = os.path.dirname(path)
    if "session" not in found:
        return Refusal("locked", "`%s` is locked, but `%s` cannot be read" % (folder, path))
    term, away = foreign.read_term(path, found), machine.find_other(found)
    one = foreign.find(path)
    user = one.user if one is not None else None
    message = "`%s` is held by %s (session `%s`)%s since %s%s" % (
        folder,
        found["holder"],
        found["session"],
        " from `%s` (machine `%s`)" % (found["host"], away) if away is not None else "",
        foreign.show_time(found["since"]),
        foreign.show_end(term),
    )
    if term.is_over:
        who = "who began it" if user is None else "the user `%s`" % user
        message += ": `sgldbg revert --all`, as %s, ends it" % who
    names = ("session", "host", "holder", "hostname", "since", "state_dir")
    data = {name: found.get(name) for name in names}
    return Refusal("locked", message, path=path, until=term.until, user=user, **data)


def _file_reverted(session: SessionState, package_dir: str) -> List[Args]:
    """File away sessions on this install that their guard has undone; their reports are shown."""
    shown = []
    pattern = os.path.join(glob.escape(session.state_dir), "sessions", "*", "*", JOURNAL)
    for path in sorted(glob.glob(pattern)):
        facts = Facts(journal.read(path))
        directory = os.path.dirname(path)
        if directory == session.directory or facts.package_dir != package_dir:
            continue
        if machine.find_other(facts.begun) is not None:
            continue
        if facts.by and facts.is_clean and not _is_live(directory):
            value = recover.recover(directory)
            name, host = directory.split(os.sep)[-2:]
            shown.append({"session": name, "host": host, **value})
    return shown


def _is_live(directory: str) -> bool:
    held = lease.read(directory)
    return held is not None and held.is_live()
