"""The ops of a session: what the protocol calls them, around the parts that do the work."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Callable, Dict, Tuple

from .files import claim, effective, files, probedir, shared, swap
from .held import lease
from .held.state import Context, SessionState
from .proc import procfs
from .refusal import Refusal
from .server import life
from .session import begin, guard, logout, recover, staging, status, takeover

Args = Dict[str, Any]
Answer = Tuple[Any, bytes]


def _held(context: Context) -> SessionState:
    if context.session is None:
        raise Refusal("fenced", "this agent holds no session")
    context.session.check()
    return context.session


def _take_in(context: Context, session: SessionState) -> None:
    if context.session is not None:
        context.session.close()
    context.hold(session)


def _adopt(context: Context, session: SessionState) -> Answer:
    _take_in(context, session)
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
    value, _ = _adopt(context, begin.begin(context.state_dir, args, guard.start))
    uid = os.geteuid()
    mortal = procfs.user_name(uid) if logout.kills_all(uid) else None
    return dict(value, ends_at_logout=mortal), b""


def _is_held(session: SessionState) -> bool:
    try:
        session.check()
    except Refusal:
        return False
    return True


def op_attach(context: Context, args: Args, raw: bytes) -> Answer:
    """Take up a session after the channel was lost."""
    session = begin.attach(
        context.state_dir,
        args["session"],
        args["host"],
        guard.start,
        epoch=args.get("epoch"),
        keep=bool(args.get("keep")),
    )
    claim.show(session, session.check())
    return _adopt(context, session)


def op_guard(context: Context, args: Args, raw: bytes) -> Answer:
    """Start a guard where the one of the journal is dead."""
    session = _held(context)
    if not begin.guard_is_alive(session.facts):
        # Watched at once; the line waits for whatever step is running.
        session.facts.guard = guard.start(session.directory)
        with session.locked():
            session.note("guard", guard=session.facts.guard)
            claim.show(session, session.check())
    return {"guard": session.facts.guard}, b""


def op_renew(context: Context, args: Args, raw: bytes) -> Answer:
    """Answered by the reading thread: reads and writes the lease, nothing else."""
    if context.session is None:
        raise Refusal("fenced", "this agent holds no session")
    renewed = context.session.renew(args["lease_s"])
    shared.renew(context.session, renewed)
    claim.beat(context.session, renewed)
    alive = begin.guard_is_alive(context.session.facts)
    return {**_times(renewed), "guard": "alive" if alive else "dead"}, b""


def _times(held: lease.Lease) -> Args:
    return {"deadline_s": held.deadline_s, "now_s": lease.now_s()}


def op_detach(context: Context, args: Args, raw: bytes) -> Answer:
    """Give the lease its full length, whatever becomes of the channel."""
    session = _held(context)
    detached = session.renew(args["lease_s"], detached=True, let_go=True)
    shared.renew(session, detached)
    claim.show(session, detached)
    return _times(detached), b""


def op_keep(context: Context, args: Args, raw: bytes) -> Answer:
    """End the lease without a revert; the journal waits for a later one."""
    session = _held(context)
    with session.locked():
        if not session.check().is_kept():
            _refuse_half(session)
        kept = lease.change(
            session.directory, session.epoch, session.holder, deadline_s=None, let_go=True
        )
        session.note("kept")
        claim.show(session, kept)
        shared.renew(session, kept)
    recover.dismiss_guard(session)
    return None, b""


def _refuse_half(session: SessionState) -> None:
    """Refuse to leave for good what no session means to leave: half in, or on its way back."""
    shown = status.read_session(session.directory)
    wrong = ["%s: %s" % (f["path"], f["state"]) for f in shown["files"] if f["state"] != "patched"]
    if not shown["files"] or shown["state"] != "patched":
        wrong.insert(0, "its state is `%s`" % shown["state"])
    if shown["server"] != "debug life" or session.facts.debug is None:
        wrong.append("its server is `%s`" % shown["server"])
    if wrong:
        message = "only a whole debug life can be kept: %s" % "; ".join(wrong)
        raise Refusal("not-applied", message, state=shown["state"], server=shown["server"])


def op_stage(context: Context, args: Args, raw: bytes) -> Answer:
    """Lock the install and put the planned bytes beside their targets."""
    return staging.stage(_held(context), args, raw), b""


def op_describe_server(context: Context, args: Args, raw: bytes) -> Answer:
    """Journal the server so that it can be started again, and give its user the probe directory."""
    session = _held(context)
    with files.refusing("the server's description could not be kept"):
        if args.get("pid") is None:
            life.describe_absent(session, args["argv"], args.get("env") or {}, args.get("cwd"))
            return None, b""
        described = life.describe_running(session, args)
        begun = session.facts.begun or {}
        probedir.give(begun["probe_dir"], (session.facts.server or {}).get("uid"))
    if (args.get("way") or {}).get("kind") == "pair":
        # Its next life will see as much as this one; known now, it costs no restart.
        server = lease.Process(described["pid"], described["start_time"])
        probedir.require_visible(begun["probe_dir"], server, "")
    return described, b""


def op_stop_server(context: Context, args: Args, raw: bytes) -> Answer:
    """Stop the original, or the debug life."""
    session = _held(context)
    if args.get("announce"):
        with files.refusing("the stop could not be announced"):
            claim.show_server(session)
            life.announce_stop(session, float(args["timeout_s"]), args.get("port"))
        return {"stopped": [], "killed": [], "seconds": 0.0, "left": []}, b""
    stop: Callable[..., Args] = life.stop_original
    if args["which"] == "debug":
        stop = life.stop_debug
    elif args["which"] != "original":
        raise Refusal("bad-request", "`which` is `original` or `debug`")
    else:
        claim.show_server(session)
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
    environ = dict(described.get("environ") or os.environ, **(args.get("env_set") or {}))
    for name in args.get("env_unset") or ():
        environ.pop(name, None)
    cwd = args.get("cwd") or described.get("cwd")
    found = effective.find_needles(args["python"], args["needles"], environ, cwd)
    return {"files": found}, b""


def op_probe_table(context: Context, args: Args, raw: bytes) -> Answer:
    """Put a new probe table where the runtime looks for it."""
    session = _held(context)
    with files.refusing("the probe table could not be written"), session.step("table"):
        probedir.write_table((session.facts.begun or {})["probe_dir"], args["table"])
    debug = session.facts.debug
    if debug is not None:
        server = lease.Process(debug["pid"], debug["start_time"])
        probedir.require_visible((session.facts.begun or {})["probe_dir"], server)
    return None, b""


def op_start_server(context: Context, args: Args, raw: bytes) -> Answer:
    """Start the debug life."""
    session = _held(context)
    with files.refusing("the server was not started"):
        claim.show_server(session)
        return life.start_debug(session, args), b""


def op_revert(context: Context, args: Args, raw: bytes) -> Answer:
    """Put the originals back and prove it."""
    session = _held(context)
    reports = swap.revert(session, bool(args.get("force")))
    return {"files": reports, "verified": session.facts.is_clean}, b""


def op_restore_server(context: Context, args: Args, raw: bytes) -> Answer:
    """Start the original as it was."""
    with files.refusing("the original server was not started"):
        return life.restore(_held(context), again=True), b""


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
    """Undo and end a session that nobody holds; with `hold` the end is left to `finish` where its
    server was given back.
    """
    names, state_dir = (args["session"], args["host"]), context.state_dir
    force, own, gone = bool(args.get("force")), context.session, args.get("gone") or ()
    hold = partial(_take_in, context) if args.get("hold") else None
    if args.get("lock"):
        value = takeover.recover_by_lock(args["lock"], names, state_dir, force, gone, hold)
        if value is not None:
            return value, b""
    directory = takeover.find_dir(state_dir, *names)
    if own is not None and own.directory == directory and not _is_held(own):
        context.session = None
        own.close()
        own = None
    if own is None or own.directory != directory:
        return takeover.recover_member(directory, state_dir, force, gone, hold=hold), b""
    value = recover.recover_held(own, force, hold is not None)
    if not value["left"] and not (hold and recover.stays_open(value)):
        context.session = None
        own.close()
    return value, b""


OPS: Dict[str, Callable[[Context, Args, bytes], Answer]] = {
    "begin": op_begin,
    "attach": op_attach,
    "renew": op_renew,
    "guard": op_guard,
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
