"""The end of a session on its host, by whoever is left: stop, revert, start the original."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, Dict, List, Optional

from ..files import claim, files, probedir, spare, swap
from ..held import lease, lock, machine, rebuild
from ..held.journal import sync_dir
from ..held.lease import Lease
from ..held.state import JOURNAL, SessionState, was_ended
from ..refusal import Refusal
from ..server import life
from . import duplicate

Value = Dict[str, Any]
Trace = Callable[[str], None]
# Takes a session that is not ended yet, as its holder from then on.
Hold = Callable[[SessionState], None]
# How long a revert waits for a guard that is at work: its longest step is stopping a server.
_OTHER_WAIT_S = 120.0


def recover(
    session_dir: str,
    force: bool = False,
    wait_s: float = _OTHER_WAIT_S,
    here: bool = False,
    hold: Optional[Hold] = None,
) -> Value:
    """Undo a session that nobody holds, from its journal alone, and end it.

    May be repeated after any interruption. Value: `files` as of `revert`, `verified`, `server`
    (the original that runs again, or `None`), `report` (what a guard did before) and `left`, in
    words: with anything there the journal stays open. Where how the server ran was lost with an
    earlier directory, `lost` has the command lines of the debug life, at every try. A server that
    ends again at once is left as well. With `hold` a session whose server was started or is back is
    not ended but given to it: whoever can tell when a server is ready ends it then. Raises
    `Refusal` (`busy`) while the session's lease is live, `missing` where there is no such session,
    `elsewhere` for one of another machine, unless somebody knows that it is of this one, renamed
    (`here`).
    """
    session_dir = os.path.abspath(session_dir)
    if not os.path.exists(os.path.join(session_dir, JOURNAL)):
        message = "there is no session in `%s`" % session_dir
        raise Refusal("missing", message, ended=was_ended(session_dir))
    session = take_over(session_dir, lease.RECOVER, wait_s, here)
    is_held = False
    try:
        with session.locked():
            value = _undo(session, force, watch=hold is None)
            is_held = hold is not None and stays_open(value)
            if hold is not None and is_held:
                hold(session)
            elif not value["left"]:
                end(session)
            return value
    finally:
        if not is_held:
            session.close()


def stays_open(value: Value) -> bool:
    """Whether a session that was undone with `hold` waits until its server is seen to run."""
    return value["server"] is not None and not value["left"]


def recover_held(session: SessionState, force: bool = False, hold: bool = False) -> Value:
    """`recover` for a session that the caller holds; it keeps it where something is left, and
    with `hold` as `recover` says.
    """
    with session.locked():
        # As long as this process lives, and no longer: a tail may outlast any lease.
        lease.change(
            session.directory,
            session.epoch,
            session.holder,
            by=lease.RECOVER,
            deadline_s=lease.OVER_S,
        )
        value = _undo(session, force, watch=not hold)
        if not value["left"] and not (hold and stays_open(value)):
            end(session)
        return value


def _undo(session: SessionState, force: bool, watch: bool) -> Value:
    report = list(session.facts.report)
    # Nothing knows how its server ran once the session is ended: this is the last one to start it.
    value = run_tail(session, force, again=True)
    value["report"] = report
    if session.facts.lost_server:
        value["lost"] = life.read_lives(session)
    if watch and value["server"] is not None:
        value["left"] += life.watch_restored(session, value["server"])
    return value


def take_over(
    session_dir: str, by: str, wait_s: float, here: bool = False, lost: bool = False
) -> SessionState:
    """Make the caller the holder of a session whose lease is over, and end whoever held it.

    `lost` says that its journal came back from memory: the lock may know what was done last.

    The epoch is raised, so that a holder which wakes up late is refused; an agent is killed, since
    a stopped process keeps its locks; a guard at work is waited for, another revert has priority.
    """
    if by != lease.GUARD and not here:  # a guard was started on its own machine
        machine.refuse_other(os.path.join(session_dir, JOURNAL))
    found = lease.read(session_dir)
    _end_stopped(session_dir)
    _refuse_live(found)
    if found is not None and found.by == lease.AGENT and found.boot_id == lease.read_boot_id():
        lease.end(found.agent)
    step_lock = os.path.join(session_dir, "step.lock")
    with lease.flocked(step_lock, wait_s, lambda: _end_stopped(session_dir)) as free:
        # Who could still hold it against the guard was killed: it will never run code again.
        if not free and by != lease.GUARD:
            raise Refusal("busy", "another process is at work on this session")
        if not os.path.exists(os.path.join(session_dir, JOURNAL)):
            ended = was_ended(session_dir)
            raise Refusal("missing", "the session is not there any more", ended=ended)
        with lease.exclusive(session_dir):
            now = lease.read(session_dir)
            _refuse_live(now)
            mine = _make_lease(now, by)
            lease.write(session_dir, mine)
        session = SessionState(session_dir, mine.epoch, mine.agent)
        try:
            duplicate.catch_up(session, lost)
        except Exception:
            session.close()
            raise
    return session


def _end_stopped(session_dir: str) -> None:
    """End a guard, or another revert, that was stopped at its work: it keeps its locks for ever."""
    found = lease.read(session_dir)
    if found is not None and found.by != lease.AGENT and lease.is_stopped(found.agent):
        lease.end(found.agent)


def _refuse_live(found: Optional[Lease]) -> None:
    if found is None or not found.is_live() or found.by == lease.GUARD:
        return  # a guard lets go between two tries; while it works it holds the step lock
    if found.by == lease.RECOVER:
        if found.agent == lease.me():
            return
        message = "a revert is at work on this session (process %d)" % found.agent.pid
        raise Refusal("busy", message)
    now_s = lease.now_s()
    left_s = (found.deadline_s or 0.0) - now_s
    message = "the session's lease is live for another %.0f s" % left_s
    raise Refusal("busy", message, deadline_s=found.deadline_s, now_s=now_s)


def _make_lease(before: Optional[Lease], by: str) -> Lease:
    epoch = before.epoch + 1 if before is not None else 1
    grace_s = before.grace_s if before is not None else 0.0
    # Not kept and not ended, and it lasts as long as its holder lives.
    return Lease(epoch, by, lease.me(), lease.read_boot_id(), lease.OVER_S, 0.0, grace_s)


def run_tail(
    session: SessionState, force: bool = False, trace: Trace = lambda _: None, again: bool = False
) -> Value:
    """Everything up to the original server, each part tried whatever became of the others.

    By `force` it is also started where it was back and has ended since: what it lacked may have
    been a file that is only put back now. With `again` only where nothing else is left.
    Files come first: a server that cannot be stopped does not keep them patched. The original is
    not started while planned bytes are in place or a process of the debug life is left.
    """
    value: Value = {"files": [], "verified": False, "server": None, "left": []}
    left: List[str] = value["left"]

    def attempt(what: str, work: Callable[[], Any]) -> Any:
        try:
            result = work()
        except Exception as error:
            left.append("%s: %s" % (what, files.explain(error)))
            trace("%s failed: %s: %s" % (what, type(error).__name__, error))
            return None
        trace("%s: done" % what)
        return result

    def early() -> None:
        with contextlib.suppress(Exception):  # the whole revert follows, and says what is wrong
            swap.put_back_early(session)
            trace("the files are back, the debug life is ending")

    with session.locked():
        with contextlib.suppress(Refusal):  # each part says so for itself
            claim.beat(session, session.check())
        attempt("staged files", lambda: swap.remove_staged(session))
        stopped = attempt("stopping the debug life", lambda: _stop_debug(session, early))
        reports = attempt("the files", lambda: swap.revert(session, force))
        value["files"] = reports or []
        if stopped is not None:  # what was about to start while we stopped the rest
            stopped = attempt("stopping the debug life again", lambda: _stop_debug(session))
        left.extend(_describe_left(session, value["files"], stopped))
        clean = reports is not None and session.facts.is_clean
        value["verified"] = clean and not swap.changed_files(session)
        if not clean and not value["files"]:
            left.append("the files were not reverted")
        if _may_start(session, value, stopped):
            value["server"] = attempt(
                "the original server",
                lambda: life.restore(session, again=force or (again and not left)),
            )
        if value["verified"]:
            attempt("the lock", lambda: unlock(session))
    return value


def _stop_debug(session: SessionState, meanwhile: Callable[[], None] = lambda: None) -> Value:
    if session.facts.started is None:
        return {"left": []}
    asked = session.facts.stopping or {}
    return life.stop_debug(session, asked.get("timeout_s"), asked.get("port"), meanwhile)


def _describe_left(session: SessionState, reports: Any, stopped: Optional[Value]) -> List[str]:
    left = ["debug life: %s" % text for text in (stopped or {}).get("left", [])]
    for report in reports:
        if report["state"] in ("drift", "failed"):
            left.append("%s: %s, %s" % (report["path"], report["state"], report["why"]))
    return left


def _may_start(session: SessionState, value: Value, stopped: Optional[Value]) -> bool:
    """Ask the disk as well: a revert that broke off says nothing of the files it did not reach."""
    if session.facts.files and not os.path.isdir(session.facts.package_dir):
        return False  # a disk that went away may come back, and without it no server comes up
    failed = any(report["state"] == "failed" for report in value["files"])
    free = stopped is not None and not stopped.get("left")
    return free and not failed and not swap.patched_files(session)


def unlock(session: SessionState) -> None:
    """Release the lock beside the install and give the directories their times back."""
    facts = session.facts
    if facts.locks and not facts.unlocked:
        with session.step("unlock"):
            for path in facts.locks:
                lock.release(path, session.lock_holder())
    # Also where it ended right after the release, as long as nobody else is at work there.
    if not any(map(os.path.lexists, facts.locks)):
        swap.restore_dirs(session)


def end(session: SessionState) -> None:
    """Close a session that left nothing behind: guard gone, secrets gone, journal filed away."""
    with session.locked(), files.refusing("the session could not be ended"):
        with session.step("finish"):
            life.forget_server(session)
            spare.forget(session)
            facts = session.facts
            probe_dir = (facts.begun or {}).get("probe_dir")
            if probe_dir:
                probedir.remove(probe_dir, (facts.server or {}).get("uid"))
        session.note("ended")
        _end_lease(session)
        dismiss_guard(session)
        ended = file_away(session)
        if rebuild.is_refuge(session.state_dir):  # nobody would ever look there for it again
            rebuild.leave_refuge(session.state_dir, ended)


def _end_lease(session: SessionState) -> None:
    lease.change(session.directory, session.epoch, session.holder, ended=True)


def dismiss_guard(session: SessionState, wait_s: float = 3.0) -> None:
    """Wait until the guard has seen that it is not needed any more; end it where it does not."""
    if session.facts.guard is None:
        return
    guard = lease.Process(session.facts.guard["pid"], session.facts.guard["start_time"])
    limit_s = time.monotonic() + wait_s
    while lease.is_alive(guard) and guard != lease.me():
        if time.monotonic() > limit_s:
            lease.end(guard)
            return
        time.sleep(0.01)


def file_away(session: SessionState) -> str:
    """Move the session's directory to the ended ones and return where it is."""
    folder = os.path.join(session.state_dir, "ended", session.name)
    os.makedirs(folder, 0o700, exist_ok=True)
    target, number = os.path.join(folder, session.host), 1
    while os.path.lexists(target):
        number += 1
        target = os.path.join(folder, "%s.%d" % (session.host, number))
    parent = os.path.dirname(session.directory)
    os.rename(session.directory, target)
    sync_dir(folder)
    with contextlib.suppress(OSError):  # other hosts of the same session, on the same machine
        os.rmdir(parent)
    return target
