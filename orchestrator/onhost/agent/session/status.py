"""What is changed on this host, by whom and until when; reads only, takes no lock."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterable, List, Optional

from ..files import files, spare
from ..held import journal, lease, lock, machine, sight, untrusted
from ..held.facts import Facts, PlannedFile
from ..held.lease import Lease
from ..held.state import JOURNAL
from . import begin, foreign, moved, orphan, serving, takeover

Session = Dict[str, Any]


def sessions(state_dir: str, package_dirs: Iterable[str] = ()) -> List[Session]:
    """Every session that has not ended, by name and host: those of this state directory, then
    those outside of it, then those of which only a lock is left, then whatever else holds one of
    these packages.
    """
    found = []
    for top in takeover.list_roots(state_dir):
        root = os.path.join(top, "sessions")
        for name in _names(root):
            for host in _names(os.path.join(root, name)):
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # ended just now
                    found.append(read_session(os.path.join(root, name, host)))
    known = {one["session"] for one in found}  # who shares an install shows it itself
    for one in moved.find_all(state_dir, package_dirs):
        if one.session in known and not one.is_anew:
            continue
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found.append(read_moved(one))
    found += [read_orphan(lost) for lost in orphan.find_all(package_dirs)]
    # A host that shares an install shows it itself. What a shared home says is less than the lock.
    shown = {one["session"] for one in found if not one["elsewhere"]}
    abroad = [one for one in takeover.find_all(package_dirs) if one.names[0] not in shown]
    better = {tuple(one.names) for one in abroad}
    found = [one for one in found if (one["session"], one["host"]) not in better]
    found += [read_abroad(one, state_dir) for one in abroad]
    told = {one["session"] for one in found}
    return found + [read_foreign(one) for one in foreign.find_all(package_dirs, told)]


def read_abroad(one: takeover.Abroad, state_dir: str) -> Session:
    """A session of another machine whose install is seen from here, as its lock and the disk show
    it; how long that lock has been silent is counted from the first look at it.
    """
    if one.seen.is_trusted:
        sight.watch(state_dir, one.path, one.seen.stamp)
    facts, holder = one.facts, one.holder
    lost = os.path.join(holder["state_dir"], "sessions", *one.names)
    return dict(
        _ELSEWHERE,
        session=holder["session"],
        host=holder["host"],
        root=facts.root,
        holder=holder["holder"],
        since=holder["since"],
        state=_OTHER % holder["hostname"],
        now_s=lease.now_s(),
        lease_s=0.0,
        server="untouched",
        ran=False,
        files=_show_files(facts),
        report=[],
        elsewhere=holder["hostname"],
        lock=one.path,
        lost=untrusted.plain(lost),
    )


def read_moved(one: moved.Moved) -> Session:
    """A session outside of this state directory; `lock` is what leads to it, `lost` is where it
    began if that is gone, else null.
    """
    if not one.is_anew:
        return dict(read_session(one.directory), lock=one.path, lost=None)
    begun = Facts(journal.read(os.path.join(one.directory, JOURNAL))).begun or {}
    lost = os.path.join(str(begun.get("state_dir")), "sessions", one.session, one.host)
    return dict(read_session(one.directory), lock=one.path, lost=untrusted.plain(lost))


def read_orphan(one: orphan.Orphan) -> Session:
    """A session without a directory, as its lock and the disk show it now."""
    facts, holder = one.facts, one.holder
    shown = []
    for item, planned in zip(_show_files(facts), facts.files):
        kept = planned.orig if os.path.lexists(planned.orig) else None
        shown.append(dict(item, kept=kept))
    patched = "patched" if any(item["state"] == "patched" for item in shown) else "staged"
    return {
        "session": holder["session"],
        "host": holder["host"],
        "root": facts.root,
        "holder": holder.get("holder", ""),
        "since": holder.get("since"),
        "state": "%s, its directory is lost" % (patched if one.records else "unknown"),
        "deadline_s": 0.0,
        "now_s": lease.now_s(),
        "lease_s": 0.0,
        "expired": True,
        "controller": "gone",
        "guard": "alive" if one.ends == orphan.BY_GUARD else "dead",
        "server": "untouched" if holder.get("server") == "untouched" else "unknown",
        "ran": holder.get("server") == "stopped",
        "files": shown,
        "report": [],
        "elsewhere": None,
        "lock": one.path,
        "lost": untrusted.plain(one.directory),
        "ends": one.ends,
        "why_not": one.why_not,
        "user": None,
    }


def read_foreign(one: foreign.Foreign) -> Session:
    """A session that nobody here can undo, as its lock, the disk and its guard show it now."""
    facts, holder = one.facts, one.holder
    term = foreign.read_term(one.path, holder) if holder else foreign.Term(None, False, "unknown")
    shown = _show_files(facts)
    state = _state(facts, None, [item["state"] for item in shown]) if shown else "unknown"
    if holder.get("boot_id", "") not in ("", lease.read_boot_id()):
        state += _RESTARTED
    package_dir = os.path.dirname(one.path)
    return {
        "session": holder.get("session", ""),
        "host": holder.get("host", ""),
        "root": facts.root or os.path.dirname(package_dir),
        "holder": holder.get("holder", ""),
        "since": holder.get("since"),
        "until": term.until,
        "state": state,
        "deadline_s": holder.get("deadline_s"),
        "now_s": lease.now_s(),
        "lease_s": 0.0,
        "expired": term.is_over,
        "controller": "unknown",
        "guard": term.guard,
        "server": "untouched" if holder.get("server") == "untouched" else "unknown",
        "ran": holder.get("server") == "stopped",
        "files": shown,
        "report": [],
        "elsewhere": None,
        "lock": one.path,
        "lost": None,
        "ends": one.ends,
        "why_not": one.why_not,
        "user": one.user,
    }


def _names(path: str) -> List[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def read_session(directory: str) -> Session:
    """One session as its journal, its lease and the disk show it now."""
    facts = Facts(journal.read(os.path.join(directory, JOURNAL)))
    held = lease.read(directory)
    begun = facts.begun or {}
    now_s = lease.now_s()
    other = machine.find_other(begun)
    shown = _show_files(facts, directory) if other is None else []
    names = (os.path.basename(os.path.dirname(directory)), os.path.basename(directory))
    server = serving.read_server(facts, "%s/%s" % names) if other is None else "unknown"
    value = {
        "session": names[0],
        "host": names[1],
        "root": facts.root,
        "holder": begun.get("holder", ""),
        "since": begun.get("since"),
        "state": _state(facts, held, [item["state"] for item in shown]),
        "deadline_s": held.deadline_s if held is not None else None,
        "now_s": now_s,
        "lease_s": held.lease_s if held is not None else 0.0,
        "expired": held is None or (not held.is_live() and not held.is_kept()),
        "controller": _controller(held),
        "guard": "alive" if begin.guard_is_alive(facts) else "dead",
        "server": server,
        "ran": facts.lost_server or bool((facts.server or {}).get("ran")),
        "files": shown,
        "report": facts.report,
        "elsewhere": other,
        "shared_with": (facts.sharing or {}).get("owner"),
        "taken_from": begun.get("taken_from"),
        "over": other is None and _is_over(facts, shown, server),
    }
    return value if other is None else dict(value, **_ELSEWHERE, state=_OTHER % other)


# What only that machine can tell; a lease counts as running, so that nobody here ends it.
_ELSEWHERE = {"deadline_s": None, "expired": False, "controller": "elsewhere", "guard": "unknown"}
_OTHER = "on another machine: %s"


_RESTARTED = ", the host was restarted since"


def _show_files(facts: Facts, directory: str = "") -> List[Dict[str, str]]:
    """Each file with its state; of one that drifted also where its original is, to compare them:
    beside it, or where somebody took that away, the copy in the session's `directory`.
    """
    shown = [{"path": one.path, "state": _file_state(facts, one)} for one in facts.files]
    for item, one in zip(shown, facts.files):
        copies = [one.orig, *([spare.find_path(directory, facts, one)] if directory else [])]
        kept = [path for path in copies if os.path.lexists(path)]
        if item["state"] == "drift" and kept:
            item["kept"] = kept[0]
    for item in (facts.sharing or {"files": []})["files"]:
        shown.append({"path": item["path"], "state": _shared_state(item)})
    return shown


def _controller(held: Optional[Lease]) -> str:
    """Whether somebody drives the session now, or it was left to its guard, or for good."""
    if held is None or held.by != lease.AGENT or not (held.is_live() or held.is_kept()):
        return "gone"
    same_boot = held.boot_id == lease.read_boot_id()
    if same_boot and not held.let_go and lease.is_alive(held.agent):
        return "alive"
    if held.is_kept():
        return "kept"
    return "detached" if held.detached else "gone"


def _file_state(facts: Facts, one: PlannedFile) -> str:
    try:
        seen = files.look(one.path)
    except OSError as error:
        return "unknown: %s" % error.strerror
    if seen.sha256 == one.after_sha256 and one.file in facts.swapping:
        return "patched"
    if seen.sha256 == one.before_sha256:  # both `None` for one that is not created yet
        return "original" if seen.kind != "other" else "drift"
    if one.file in facts.put_back and not os.path.lexists(one.orig):
        return "changed after it was put back"
    is_swapped = one.file in facts.swapping and one.file not in facts.let_go
    return "drift" if is_swapped else "changed before the swap"


def _shared_state(item: Dict[str, Any]) -> str:
    try:
        found = files.look(item["path"]).sha256
    except OSError as error:
        return "unknown: %s" % error.strerror
    if item["before_sha256"] is None:  # what is created names its host, and this is its owner's
        return "original" if found is None else "patched"
    states = {item["before_sha256"]: "original", item["after_sha256"]: "patched"}
    return states.get(found, "drift")


def _state(facts: Facts, held: Optional[Lease], states: List[str]) -> str:
    if facts.verified and facts.by:
        return "reverted by %s" % facts.by
    if "drift" in states:
        return "drift"
    if "patched" not in states and _is_anew(facts):
        return "gone, the install was made anew"
    patched = "patched" if "patched" in states else "staged" if states else "begun"
    if facts.verified:
        patched = "reverted"
    if held is not None and held.is_kept():
        return "%s, kept" % patched
    if held is not None and held.boot_id != lease.read_boot_id():
        return patched + _RESTARTED
    return patched


def _is_over(facts: Facts, shown: List[Dict[str, str]], server: str) -> bool:
    """Whether a guard has put everything back and proven it, so that only its report waits."""
    unlocked = facts.unlocked or not facts.locks
    proven = facts.is_clean and unlocked and bool(facts.by)
    ran = bool((facts.server or {}).get("ran"))
    back = server in (("restored", "untouched") if ran else ("stopped", "untouched"))
    return proven and back and all(item["state"] == "original" for item in shown)


def _is_anew(facts: Facts) -> bool:
    """Whether planned bytes were in place once, and neither they nor the lock are there now."""
    swapped = facts.swapping and not facts.unlocked and not facts.put_back
    return bool(swapped) and all(lock.read(path) is None for path in facts.locks)
