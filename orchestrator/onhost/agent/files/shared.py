"""Installs that several hosts of a session share: one of them owns the files, the others wait.

The lock beside the install finds them: who meets the lock of its own session under another host's
name shares the install with that host. Such a member stages, swaps and reverts nothing. It keeps
a lease of its own beside the install, which says that its server may still run from these files.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import time
from typing import Any, Dict, List, Optional

from ..held import journal, lease, lock, machine, sight, untrusted
from ..held.dirs import LOCK_NAME
from ..held.facts import Facts
from ..held.journal import sync_dir
from ..held.state import JOURNAL, SessionState, write_private
from ..held.untrusted import fields, is_seconds, is_text, maybe
from ..refusal import Refusal
from . import files

Value = Dict[str, Any]
# The ops that wait have a minute from their controller.
_WAIT_S = 40.0
_POLL_S = 0.05
# What was caught while it was written says nothing of its lease.
_UNREADABLE_S = 60.0
SEEN = "members.json"
_MEMBER = fields(beat=is_text, limit_s=maybe(is_seconds))


def find_owner(session: SessionState, paths: List[str]) -> Optional[str]:
    """The host of this same session that holds a lock here, where it is another one than we."""
    for path in paths:
        found = lock.read(path) or {}
        if found.get("session") == session.name and found.get("host") != session.host:
            return str(found["host"])
    return None


def join(session: SessionState, owner: str, args: Value, paths: List[str]) -> None:
    """Leave the files to their owner and say beside the install that a server runs from them."""
    root = os.path.abspath(args["root"])
    members = [_member_path(path, session.name, session.host) for path in paths]
    wanted = [
        {
            "path": os.path.realpath(os.path.join(root, item["file"])),
            "before_sha256": item["before_sha256"],
            "after_sha256": item["after_sha256"],
        }
        for item in args["files"]
    ]
    detail = {
        "owner": owner,
        "root": root,
        "package": args["package"],
        "files": wanted,
        "members": members,
    }
    with files.refusing("the install cannot be shared"), session.step("share", **detail):
        _beat(session, session.check(), durable=True)


def _member_path(lock_path: str, session: str, host: str) -> str:
    # The lock's folder is the same for all of them, by definition.
    return os.path.join(os.path.dirname(lock_path), ".sgldbg-member-%s-%s" % (session, host))


def renew(session: SessionState, held: lease.Lease) -> None:
    """Show the others that this member's lease was renewed; a failure only makes them impatient."""
    if session.facts.sharing is not None and not session.facts.left_share:
        with contextlib.suppress(OSError):
            _beat(session, held, durable=False)


def _beat(session: SessionState, held: lease.Lease, durable: bool) -> None:
    """One more number; no clock is in it, since two hosts have no clock in common."""
    session.beat += 1
    said = {"beat": "%d.%d" % (os.getpid(), session.beat), "limit_s": held.limit_s()}
    data = json.dumps(said)
    for path in (session.facts.sharing or {})["members"]:
        fd = untrusted.open_to_write(path, os.O_CREAT if durable else 0)
        try:
            os.pwrite(fd, data.ljust(127).encode("ascii") + b"\n", 0)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        if durable:
            sync_dir(os.path.dirname(path))


def leave(session: SessionState) -> None:
    """Say that no server of this member runs from the shared files any more."""
    sharing = session.facts.sharing
    if sharing is not None:
        with session.step("unshare"):
            for path in sharing["members"]:
                files.remove(path)


def wait_until_in(session: SessionState) -> None:
    """Wait until this host itself reads the planned bytes; refuses where it does not."""
    wanted = (session.facts.sharing or {})["files"]
    limit_s = time.monotonic() + _WAIT_S / 2
    while not _all(wanted, "after_sha256"):
        if time.monotonic() > limit_s:
            message = "the planned files that %s put in are not seen here" % _owner(session)
            raise Refusal("changed", message)
        time.sleep(_POLL_S)


def wait_until_back(session: SessionState) -> List[Value]:
    """Leave, then wait until this host itself reads the originals; one report per file."""
    if not session.facts.left_share:
        leave(session)
    wanted = (session.facts.sharing or {})["files"]
    limit_s = time.monotonic() + (0.0 if _is_abandoned(session) else _WAIT_S)
    while not _all(wanted, "before_sha256") and time.monotonic() < limit_s:
        time.sleep(_POLL_S)
    return [_report(session, item) for item in wanted]


def find_lock(directory: str) -> Optional[str]:
    """The lock of the owner of the install that the session of this directory shares, if any."""
    facts = Facts(journal.read(os.path.join(directory, JOURNAL)))
    sharing = facts.sharing or {"members": [], "owner": ""}
    for member in sharing["members"]:
        path = os.path.join(os.path.dirname(member), LOCK_NAME)
        found = lock.read(path) or {}
        name = os.path.basename(os.path.dirname(directory))
        if (found.get("session"), found.get("host")) == (name, sharing["owner"]):
            return path
    return None


def _is_abandoned(session: SessionState) -> bool:
    """Whether the owner is on a machine that gave no sign of life for longer than it could.

    Each look counts, also for somebody who takes over what it left.
    """
    path = find_lock(session.directory)
    seen = lock.look(path) if path is not None else None
    if path is None or seen is None or machine.find_other(seen.holder) is None:
        return False
    limit_s = seen.holder.get("limit_s")
    quiet_s = sight.watch(session.state_dir, path, seen.stamp)
    return limit_s is not None and quiet_s >= limit_s


def _report(session: SessionState, item: Value) -> Value:
    report = {"file": item["path"], "path": item["path"], "kept": [], "let_go": False}
    report.update(state="untouched", why="shared with %s" % _owner(session))
    report["sha256"] = _sha256(item["path"])
    if not _is(item, "before_sha256") and _is(item, "after_sha256"):
        report.update(state="failed", why="%s has not put it back" % _owner(session))
    elif not _is(item, "before_sha256"):
        report.update(state="drift", why="it was changed after the swap")
    return report


def changed_files(session: SessionState) -> List[str]:
    """Paths that still hold planned bytes."""
    wanted = (session.facts.sharing or {"files": []})["files"]
    return [item["path"] for item in wanted if _is(item, "after_sha256")]


def _all(wanted: List[Value], key: str) -> bool:
    return all(_is(item, key) for item in wanted)


def _is(item: Value, key: str) -> bool:
    """A file that the session creates names its host, so it only counts whether it is there."""
    found = _sha256(item["path"])
    if item["before_sha256"] is None:
        return (found is None) == (item[key] is None)
    return bool(found == item[key])


def _sha256(path: str) -> Optional[str]:
    try:
        return files.look(path).sha256
    except OSError:
        return "unreadable"


def _owner(session: SessionState) -> str:
    return str((session.facts.sharing or {})["owner"])


def wait_for_members(session: SessionState, wait_s: Optional[float] = None) -> List[str]:
    """Wait until no other member's server can run from our files; who is left, in words.

    A member that fell silent counts as gone once its whole lease has passed on our own clock.
    """
    limit_s = time.monotonic() + (_WAIT_S if wait_s is None else wait_s)
    while True:
        live = _live_members(session)
        if not live or time.monotonic() > limit_s:
            return [_describe(host, left_s) for host, left_s in sorted(live)]
        time.sleep(_POLL_S)


def _describe(host: str, left_s: float) -> str:
    when = "it is kept there" if left_s == float("inf") else "its lease has %.0f s" % left_s
    return "a server on %s may still run from it (%s)" % (host, when)


def _live_members(session: SessionState) -> List[Any]:
    paths = [path for one in session.facts.locks for path in _list_members(one, session.name)]
    if not paths:
        return []
    known = {**_read_seen(session), **session.seen}
    seen, live, now_s = {}, [], lease.now_s()
    for path in paths:
        found = _read_member(path)
        beat, since_s = known.get(path, (None, now_s))
        seen[path] = (found["beat"], since_s if beat == found["beat"] else now_s)
        left_s = found["limit_s"] - (now_s - seen[path][1])
        if left_s > 0:
            host = os.path.basename(path)[len(".sgldbg-member-%s-" % session.name) :]
            live.append((untrusted.plain(host), left_s))
        else:
            with contextlib.suppress(OSError):  # somebody's directory under that name
                files.remove(path)
    session.seen = seen  # also where the disk takes no more: else a silent one would never be gone
    if {p: b for p, (b, _) in known.items()} != {p: b for p, (b, _) in seen.items()}:
        with contextlib.suppress(OSError):
            write_private(session.path(SEEN), {"boot_id": lease.read_boot_id(), "seen": seen})
    return live


def _list_members(lock_path: str, session: str) -> List[str]:
    folder = glob.escape(os.path.dirname(lock_path))
    return glob.glob(os.path.join(folder, ".sgldbg-member-%s-*" % glob.escape(session)))


def _read_member(path: str) -> Value:
    try:
        found = untrusted.parse_with(untrusted.read(path).data, _MEMBER)
    except OSError:
        found = None
    if found is None:  # caught while it was written, or gone just now
        return {"beat": "unreadable", "limit_s": _UNREADABLE_S}
    if found["limit_s"] is None:  # kept: until its own end
        found["limit_s"] = float("inf")
    return dict(found)


def _read_seen(session: SessionState) -> Dict[str, Any]:
    """What an earlier look of ours, perhaps by another process, has seen since when."""
    try:
        with open(session.path(SEEN), "rb") as file:
            found = json.loads(file.read().decode("ascii"))
        same_boot = found["boot_id"] == lease.read_boot_id()
        return {p: (b, s) for p, (b, s) in found["seen"].items()} if same_boot else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
