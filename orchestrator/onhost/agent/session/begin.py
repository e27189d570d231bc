"""How a session begins on a host, and how a channel that comes back takes it up again."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..files import files, probedir
from ..held import journal, lease, machine, rebuild
from ..held.facts import Facts
from ..held.journal import Journal, Record
from ..held.lease import Lease
from ..held.state import JOURNAL, SessionState, session_dir, was_ended
from ..refusal import Refusal
from . import recover

StartGuard = Callable[[str], Dict[str, int]]
OnLine = Optional[Callable[[Record], None]]


def begin(
    state_dir: str, args: Dict[str, Any], start_guard: StartGuard, on_line: OnLine = None
) -> SessionState:
    """Make directory, journal, lease and guard of a new session; nothing else is touched.

    Refuses with `exists` where the session is there already; one that its guard has undone
    completely is filed away first.
    """
    directory = session_dir(state_dir, args["session"], args["host"])
    _clear(directory)
    with files.refusing("the session's directory could not be made"):
        _make(directory, args)
    session = SessionState(directory, 1, lease.me(), on_line)
    made: List[str] = []
    try:
        _begin(session, args, start_guard, made)
    except Exception:
        _take_away(session, made)
        raise
    return session


def _make(directory: str, args: Dict[str, Any]) -> None:
    """Directory, empty journal and lease, or none of them: half of it would pass for a session."""
    try:
        rebuild.make_dirs(directory)
        try:
            Journal.create(os.path.join(directory, JOURNAL)).close()
        except FileExistsError:
            raise _exists(directory) from None
        with lease.exclusive(directory):
            lease.write(directory, _first_lease(args))
    except OSError:
        shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):  # hosts with one home have the one above it in common
            os.rmdir(os.path.dirname(directory))
        raise


def _begin(
    session: SessionState, args: Dict[str, Any], start_guard: StartGuard, made: List[str]
) -> None:
    probe_dir = probedir.find_path(session.name, session.host)
    detail = {
        "session": session.name,
        "host": session.host,
        "holder": args["holder"],
        "hostname": machine.read_name(),
        "machine": machine.read_id(),
        "boot_id": lease.read_boot_id(),
        "since": round(time.time(), 3),
        "probe_dir": probe_dir,
        "state_dir": session.state_dir,
    }
    with files.refusing("the session could not begin"), session.step("begin", **detail) as done:
        probedir.make(probe_dir)
        made.append(probe_dir)
        session.facts.guard = done["guard"] = start_guard(session.directory)


def _first_lease(args: Dict[str, Any]) -> Lease:
    lease_s, grace_s = float(args["lease_s"]), float(args["grace_s"])
    deadline_s = lease.now_s() + lease_s
    boot_id = lease.read_boot_id()
    return Lease(1, lease.AGENT, lease.me(), boot_id, deadline_s, lease_s, grace_s)


def _exists(directory: str) -> Refusal:
    host, session = os.path.basename(directory), os.path.basename(os.path.dirname(directory))
    message = "session `%s` is on this host (`%s`) already" % (session, host)
    return Refusal("exists", message, session=session, host=host)


def _clear(directory: str) -> None:
    """Make room where an earlier session of the same name left nothing that matters."""
    path = os.path.join(directory, JOURNAL)
    if not os.path.exists(path):
        return
    facts, found = Facts(journal.read(path)), lease.read(directory)
    if machine.find_other(facts.begun) is not None:
        raise _exists(directory)
    if facts.begun is None and (found is None or not lease.is_alive(found.agent)):
        shutil.rmtree(directory)  # it died before its first line, so before any effect
        return
    over = found is not None and not found.is_live() and not found.is_kept()
    if over and facts.by and facts.is_clean and not recover.recover(directory)["left"]:
        return
    raise _exists(directory)


def _take_away(session: SessionState, made: List[str]) -> None:
    """Nothing but directories of the session was made: remove them, and the guard with them."""
    with lease.exclusive(session.directory):
        found = lease.read(session.directory)
        if found is not None:
            lease.write(session.directory, replace(found, ended=True))
    recover.dismiss_guard(session)
    for path in made:
        probedir.remove(path)
    session.close()
    shutil.rmtree(session.directory)


def attach(
    state_dir: str,
    name: str,
    host: str,
    start_guard: StartGuard,
    on_line: OnLine = None,
    epoch: Optional[int] = None,
    keep: bool = False,
) -> SessionState:
    """Take up a session whose lease is not over: raise the epoch and end the agent before us.

    Refuses with `fenced` once the lease ran out, even if nothing was undone yet: then only a
    revert may have it. With `epoch` only a session that nobody took up since is given (`taken`):
    two controllers would take it from each other for ever. A session that was kept gets a lease
    and a guard again, unless `keep` says that it shall stay so. `elsewhere` is another machine's.
    """
    directory = session_dir(state_dir, name, host)
    if not os.path.exists(os.path.join(directory, JOURNAL)):
        message = "there is no session `%s` on this host" % name
        raise Refusal("missing", message, ended=was_ended(directory))
    machine.refuse_other(os.path.join(directory, JOURNAL))
    before, mine = _take_lease(directory, epoch, keep)
    if before.agent != lease.me():
        lease.end(before.agent)
    session = SessionState(directory, before.epoch + 1, lease.me(), on_line)
    with session.locked():
        if not mine.is_kept() and not guard_is_alive(session.facts):
            session.note("guard", guard=start_guard(directory))
    return session


def _take_lease(directory: str, epoch: Optional[int], keep: bool) -> Tuple[Lease, Lease]:
    with lease.exclusive(directory) as held:
        found = lease.read(directory)
        if not held or found is None or found.by != lease.AGENT:
            raise Refusal("fenced", lease.explain(found, 0, lease.me()))
        if not found.is_live() and not found.is_kept():
            raise Refusal("fenced", lease.explain(found, found.epoch, found.agent))
        if epoch not in (None, found.epoch):
            raise Refusal("taken", lease.explain(found, epoch or 0, lease.me()))
        stays = found.is_kept() and keep
        mine = replace(
            found,
            epoch=found.epoch + 1,
            agent=lease.me(),
            boot_id=lease.read_boot_id(),
            deadline_s=None if stays else lease.now_s() + found.lease_s,
            # A keep that ends must not go on as a long lease once its controller dies.
            detached=found.detached and not (found.is_kept() and not stays),
            let_go=False,
        )
        lease.write(directory, mine)
    return found, mine


def guard_is_alive(facts: Facts) -> bool:
    """Whether the guard that the journal names still runs."""
    guard = facts.guard
    return guard is not None and lease.is_alive(lease.Process(guard["pid"], guard["start_time"]))
