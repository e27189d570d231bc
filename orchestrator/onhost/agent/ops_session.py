"""The ops of a session: what the protocol calls them, around the parts that do the work."""

from __future__ import annotations

import glob
import os
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import begin, effective, files, guard, journal, lease, life, lock, probedir, recover, swap
from .facts import Facts
from .refusal import Refusal
from .state import JOURNAL, Context, SessionState, session_dir

Args = Dict[str, Any]
Answer = Tuple[Any, bytes]


def _held(context: Context) -> SessionState:
    if context.session is None:
        raise Refusal("fenced", "this agent holds no session")
    context.session.check()
    return context.session


def _adopt(context: Context, session: SessionState) -> Answer:
    if context.session is not None:
        context.session.close()
    context.session = session
    now = session.check()
    value = {
        "epoch": session.epoch,
        "deadline_s": now.deadline_s,
        "guard": session.facts.guard,
        "dir": session.directory,
        "probe_dir": (session.facts.begun or {}).get("probe_dir"),
    }
    return value, b""


def op_begin(context: Context, args: Args, raw: bytes) -> Answer:
    """Begin a session; an agent holds one at a time."""
    if context.session is not None and _is_held(context.session):
        raise Refusal("exists", "this agent holds session `%s`" % context.session.name)
    return _adopt(context, begin.begin(context.state_dir, args, guard.start))


def _is_held(session: SessionState) -> bool:
    try:
        session.check()
    except Refusal:
        return False
    return True


def op_attach(context: Context, args: Args, raw: bytes) -> Answer:
    """Take up a session after the channel was lost."""
    session = begin.attach(context.state_dir, args["session"], args["host"], guard.start)
    return _adopt(context, session)


def op_renew(context: Context, args: Args, raw: bytes) -> Answer:
    """Answered by the reading thread: reads and writes the lease, nothing else."""
    if context.session is None:
        raise Refusal("fenced", "this agent holds no session")
    renewed = context.session.renew(args["lease_s"])
    alive = begin.guard_is_alive(context.session.facts)
    return {**_times(renewed), "guard": "alive" if alive else "dead"}, b""


def _times(held: lease.Lease) -> Args:
    return {"deadline_s": held.deadline_s, "now_s": lease.now_s()}


def op_detach(context: Context, args: Args, raw: bytes) -> Answer:
    """Give the lease its full length, whatever becomes of the channel."""
    session = _held(context)
    detached = session.renew(args["lease_s"], detached=True)
    _show_until(session, detached)
    return _times(detached), b""


def op_keep(context: Context, args: Args, raw: bytes) -> Answer:
    """End the lease without a revert; the journal waits for a later one."""
    session = _held(context)
    with session.locked():
        kept = lease.change(session.directory, session.epoch, session.holder, deadline_s=None)
        session.note("kept")
        _show_until(session, kept)
    recover.dismiss_guard(session)
    return None, b""


def _show_until(session: SessionState, held: lease.Lease) -> None:
    if not session.facts.unlocked:
        for path in session.facts.locks:
            lock.update(path, _lock_holder(session, held))


def _lock_holder(session: SessionState, held: lease.Lease) -> lock.Holder:
    return session.lock_holder(_wall(held), held.deadline_s)


def _wall(held: lease.Lease) -> Optional[float]:
    if held.deadline_s is None:
        return None
    return round(time.time() + held.deadline_s - lease.now_s(), 3)


def op_stage(context: Context, args: Args, raw: bytes) -> Answer:
    """Plan, lock and stage; any failure leaves the install as it was."""
    session = _held(context)
    with session.locked():
        if session.facts.files:
            raise Refusal("exists", "this session has staged its files already")
        contents = _split(args["files"], raw)
        package_dir = os.path.join(os.path.abspath(args["root"]), args["package"])
        recovered = _recover_expired(session, lock.find_paths(package_dir))
        recovered += _file_reverted(session, package_dir)
        swap.journal_plan(session, args, swap.make_plan(args))
        try:
            _take_locks(session)
            staged = swap.stage(session, contents)
        except Exception:
            _undo_stage(session)
            raise
    return {"files": staged, "recovered": recovered}, b""


def _split(items: List[Args], raw: bytes) -> Dict[str, bytes]:
    contents, at = {}, 0
    for item in items:
        contents[item["file"]] = raw[at : at + item["size"]]
        at += item["size"]
    return contents


def _take_locks(session: SessionState) -> None:
    holder = _lock_holder(session, session.check())
    for path in session.facts.locks:
        with files.refusing("the install cannot be locked"), session.step("lock", path=path):
            try:
                lock.take(path, holder)
            except FileExistsError:
                found = lock.read(path)
                if not lock.is_mine(found, holder):
                    raise _locked(path, found) from None


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
        directory = _find_abandoned(found)
        if directory is None:
            raise _locked(path, found)
        try:
            value = recover.recover(directory)
        except Refusal:
            raise _locked(path, found) from None
        if value["left"]:
            raise _locked(path, found)
        recovered.append({"session": found["session"], "host": found["host"], **value})
    return recovered


def _find_abandoned(found: lock.Holder) -> Optional[str]:
    """The directory of the lock's session, where it is this host's and its lease ran out."""
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


def _locked(path: str, found: Optional[lock.Holder]) -> Refusal:
    found = found or {}
    folder = os.path.dirname(path)
    if "session" not in found:
        return Refusal("locked", "`%s` is locked, but `%s` cannot be read" % (folder, path))
    until = found.get("until")
    held = lease.read(
        os.path.join(str(found["state_dir"]), "sessions", found["session"], found["host"])
    )
    if held is not None:  # renewed since the lock was written
        until = _wall(held)
    message = "`%s` is held by %s (session `%s`) since %s%s" % (
        folder,
        found["holder"],
        found["session"],
        _show_time(found["since"]),
        " until %s" % _show_time(until) if until else ", kept without an end",
    )
    names = ("session", "host", "holder", "hostname", "since", "state_dir")
    data = {name: found.get(name) for name in names}
    return Refusal("locked", message, path=path, until=until, **data)


def _show_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _file_reverted(session: SessionState, package_dir: str) -> List[Args]:
    """File away sessions on this install that their guard has undone; their reports are shown."""
    shown = []
    pattern = os.path.join(glob.escape(session.state_dir), "sessions", "*", "*", JOURNAL)
    for path in sorted(glob.glob(pattern)):
        facts = Facts(journal.read(path))
        directory = os.path.dirname(path)
        if directory == session.directory or facts.package_dir != package_dir:
            continue
        if facts.by and facts.is_clean and not _is_live(directory):
            value = recover.recover(directory)
            name, host = directory.split(os.sep)[-2:]
            shown.append({"session": name, "host": host, **value})
    return shown


def _is_live(directory: str) -> bool:
    held = lease.read(directory)
    return held is not None and held.is_live()


def op_describe_server(context: Context, args: Args, raw: bytes) -> Answer:
    """Journal the server so that it can be started again, and give its user the probe directory."""
    session = _held(context)
    with files.refusing("the server's description could not be kept"):
        if args.get("pid") is None:
            life.describe_absent(session, args["argv"], args.get("env") or {}, args.get("cwd"))
            return None, b""
        described = life.describe_running(
            session, args["pid"], args["start_time"], args.get("output")
        )
        begun = session.facts.begun or {}
        probedir.give(begun["probe_dir"], (session.facts.server or {}).get("uid"))
    return described, b""


def op_stop_server(context: Context, args: Args, raw: bytes) -> Answer:
    """Stop the original, or the debug life."""
    session = _held(context)
    stop: Callable[..., Args] = life.stop_original
    if args["which"] == "debug":
        stop = life.stop_debug
    elif args["which"] != "original":
        raise Refusal("bad-request", "`which` is `original` or `debug`")
    return stop(session, float(args["timeout_s"]), args.get("port")), b""


def op_swap(context: Context, args: Args, raw: bytes) -> Answer:
    """Make the staged bytes visible."""
    session = _held(context)
    with session.locked(), files.refusing("the swap stopped half-way"):
        return {"files": swap.swap(session)}, b""


def op_effective(context: Context, args: Args, raw: bytes) -> Answer:
    """Ask the install's interpreter what it would run now."""
    session = _held(context)
    server = life.read_server(session)
    described = server["description"] if server is not None else {}
    found = effective.find_needles(
        args["python"], args["needles"], described.get("environ"), described.get("cwd")
    )
    return {"files": found}, b""


def op_probe_table(context: Context, args: Args, raw: bytes) -> Answer:
    """Put a new probe table where the runtime looks for it."""
    session = _held(context)
    with files.refusing("the probe table could not be written"), session.step("table"):
        probedir.write_table((session.facts.begun or {})["probe_dir"], args["table"])
    return None, b""


def op_start_server(context: Context, args: Args, raw: bytes) -> Answer:
    """Start the debug life."""
    with files.refusing("the server was not started"):
        return life.start_debug(_held(context), args), b""


def op_revert(context: Context, args: Args, raw: bytes) -> Answer:
    """Put the originals back and prove it."""
    session = _held(context)
    reports = swap.revert(session, bool(args.get("force")))
    return {"files": reports, "verified": session.facts.is_clean}, b""


def op_restore_server(context: Context, args: Args, raw: bytes) -> Answer:
    """Start the original as it was."""
    with files.refusing("the original server was not started"):
        return life.restore(_held(context)), b""


def op_finish(context: Context, args: Args, raw: bytes) -> Answer:
    """End a session that is as it was before."""
    session = _held(context)
    with session.locked():
        changed = list(swap.changed_files(session))
        if not session.facts.is_clean or changed:
            raise Refusal("not-reverted", "the session's files are not reverted", left=changed)
        with files.refusing("the session could not be ended"):
            recover.unlock(session)
        recover.end(session)
    context.session = None
    session.close()
    return {"left": []}, b""


def op_recover(context: Context, args: Args, raw: bytes) -> Answer:
    """Undo and end a session that nobody holds."""
    directory = session_dir(context.state_dir, args["session"], args["host"])
    value = recover.recover(directory, bool(args.get("force")))
    if context.session is not None and context.session.directory == directory:
        context.session.close()
        context.session = None
    return value, b""


OPS: Dict[str, Callable[[Context, Args, bytes], Answer]] = {
    "begin": op_begin,
    "attach": op_attach,
    "renew": op_renew,
    "detach": op_detach,
    "keep": op_keep,
    "stage": op_stage,
    "describe-server": op_describe_server,
    "stop-server": op_stop_server,
    "swap": op_swap,
    "effective": op_effective,
    "probe-table": op_probe_table,
    "start-server": op_start_server,
    "revert": op_revert,
    "restore-server": op_restore_server,
    "finish": op_finish,
    "recover": op_recover,
}
