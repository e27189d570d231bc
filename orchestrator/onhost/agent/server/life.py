"""The server's part in a session: described, stopped, its debug life, and started as it was."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from ..held import lease
from ..held.facts import Facts
from ..held.state import SessionState, write_private
from ..proc import arguments, procfs
from ..refusal import Refusal
from . import process, shm, twin

SERVER = "server.json"
# The command lines of a debug life that was found without a journal: they may hold secrets.
LIVES = "lives.json"
Value = Dict[str, Any]
_FORGOTTEN = "how its server ran is not known any more, so it was not started"
_RUNS_PLANNED = (
    "process %d runs as it did, but somebody started it while planned bytes were in place: end it,"
    " then revert once more"
)
_RUNS_DRIFTED = "it runs what stood in a file that was put back only now: start it anew"
# What the controller asked for is in the journal; these serve where it asked for nothing.
_STOP_TIMEOUT_S = 30.0
# One that lacks a module, its port or its GPU says so within its imports.
_WATCH_S = 10.0
_LOOK_S = 0.05
# A started process that has not reached its exec yet still looks like whoever forked it.
_EXEC_WAIT_S = 1.0


def read_server(session: SessionState) -> Optional[Value]:
    """What `server.json` holds: `description` with the true environment, and `ran`."""
    try:
        with open(session.path(SERVER), "rb") as file:
            found: Value = json.loads(file.read().decode("ascii"))
            return found
    except FileNotFoundError:
        return None


def read_lives(session: SessionState) -> List[List[str]]:
    """How the debug life of a session ran whose directory had been lost with its description."""
    try:
        with open(session.path(LIVES), "rb") as file:
            found: List[List[str]] = json.loads(file.read().decode("ascii"))
            return found
    except FileNotFoundError:
        return []


def describe_running(session: SessionState, args: Mapping[str, Any]) -> Value:
    """Journal how the running server is to be started again; refuses one that cannot be."""
    pid, output, way = args["pid"], args.get("output"), args.get("way")
    with session.step("describe") as done:
        description = twin.stamp(process.describe(pid, args["start_time"]))
        if way is not None:
            log = os.path.join(
                session.state_dir, "started", "%s-%s.log" % (session.name, session.host)
            )
            description = process.with_way(description, dict(way, log=log))
        elif args.get("argv"):
            environ = dict(os.environ, **(args.get("env") or {}))
            description = process.with_command(description, args["argv"], environ, args.get("cwd"))
        if output and description["needs_output"]:
            description = process.with_output(description, os.path.abspath(output))
        if not description["restorable"]:
            message = "process %d could not be started again as it is: %s" % (
                pid,
                description["why"],
            )
            raise Refusal("not-restorable", message, pid=pid, why=description["why"])
        write_private(session.path(SERVER), {"description": description, "ran": True})
        main = {"pid": pid, "start_time": description["start_time"]}
        done.update(ran=True, main=main, uid=description.get("uid"))
    return process.public(description)


def describe_absent(
    session: SessionState, argv: Any, env: Mapping[str, str], cwd: Optional[str]
) -> None:
    """Journal a server that does not run: its debug life needs a command line all the same."""
    with session.step("describe") as done:
        description = {"argv": argv, "environ": dict(os.environ, **env), "cwd": cwd or "/"}
        description["given"] = arguments.find_given(argv, cwd or "/")._asdict()
        write_private(session.path(SERVER), {"description": description, "ran": False})
        done.update(ran=False, main=None, uid=os.getuid())


def announce_stop(session: SessionState, timeout_s: float, port: Optional[int]) -> None:
    """Journal that the original is about to end, though nothing is done to it yet.

    One part of a server that runs on several hosts goes down with the others, wherever the first
    of them is stopped. From here on the end of the session is a restart on every host.
    """
    if session.facts.server is None:
        raise Refusal("not-described", "the server was not described, so it is not stopped")
    with session.locked():
        session.check()
        if session.facts.stopping is None:
            now_s = round(lease.now_s(), 3)
            session.append(
                {"kind": "announced", "timeout_s": timeout_s, "port": port, "now_s": now_s}
            )


def stop_original(session: SessionState, timeout_s: float, port: Optional[int]) -> Value:
    """Stop the server that was described; from the intent on, the end of it is a restart."""
    server = session.facts.server
    if server is None:
        raise Refusal("not-described", "the server was not described, so it is not stopped")
    with session.step("stop:original", timeout_s=timeout_s, port=port) as done:
        value = process.stop(server["main"], None, timeout_s, port, _read_description(session))
        done["left"] = value["left"]
    return value


def stop_debug(
    session: SessionState,
    timeout_s: Optional[float] = None,
    port: Optional[int] = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Value:
    """Stop what the session started, also what it may have started without noting it.

    `meanwhile` is called between the request to end and the wait for it.
    """
    with session.step("stop:debug") as done:
        wait_s = _STOP_TIMEOUT_S if timeout_s is None else timeout_s
        known = _read_description(session)
        value = process.stop(
            session.facts.debug, session.mark, wait_s, port, known, meanwhile, shm.read(session)
        )
        done["left"] = value["left"]
    return value


def _read_description(session: SessionState) -> Optional[Value]:
    server = read_server(session)
    return None if server is None else server["description"]


def start_debug(session: SessionState, args: Value) -> Value:
    """Start the debug life, its output in files of the session from the first byte."""
    server = read_server(session)
    if server is None:
        raise Refusal("not-described", "the server was not described, so it is not started")
    stdout, stderr = session.path("debug.stdout"), session.path("debug.stderr")
    env_set = dict(args.get("env_set") or {})
    folder = (session.facts.begun or {})["probe_dir"]
    if session.facts.sharing is not None:  # the runtime in place names its owner's directory
        env_set["SGLDBG_PROBE_DIR"] = folder
    shm.begin(session, server["description"].get("uid", os.getuid()))
    with session.step("start:debug") as done:
        started = process.start(
            server["description"],
            stdout,
            stderr,
            argv=args.get("argv"),
            env_set=env_set,
            env_unset=args.get("env_unset"),
            cwd=args.get("cwd"),
            session=session.mark,
            folder=folder,
        )
        done.update(started)
    # What a supervisor started may have its output elsewhere.
    return dict({"stdout": stdout, "stderr": stderr}, **started)


def restore(session: SessionState, again: bool = False) -> Optional[Value]:
    """Start the original as it was and say in what it differs; `None` where it did not run before.

    One that still runs though nobody meant to stop it, or that is back already, is left alone; but
    one that was given back while a file had drifted, which is back only now, is started anew. A
    stop that was begun or announced is brought to its end first: half of it may have happened.
    What ended one that was back already is not ours to judge, unless it is asked for `again`.
    """
    server = read_server(session)
    with session.locked():
        facts = session.facts
        if facts.restored is not None:
            known = {"pid": facts.restored["pid"], "start_time": facts.restored["start_time"]}
            if not process.is_alive(**known):
                if not again:
                    return None
            else:
                differences = list(facts.restored.get("differences") or [])
                if not twin.is_outdated(known["start_time"], facts):
                    return dict(known, differences=differences)
                if server is None:  # how it runs is not known any more: nobody could start it anew
                    return dict(known, differences=[*differences, _RUNS_DRIFTED])
                _stop_restored(session, known)
        if server is None and facts.restored is None and _was_stopped(facts):
            session.note("lost-server", text=_FORGOTTEN)
        if server is None or not server["ran"]:
            return None
        main = (facts.server or {}).get("main")
        if main is None:  # the description was not finished, so nothing was done to it
            return None
        if facts.stopping is None and process.is_alive(**main):
            return dict(main, differences=[])
        if not facts.stopped:
            since = twin.find_since(server["description"], facts)
            if facts.stopping is None and twin.find_twin(server["description"], since):
                return None  # somebody has started it again by hand
            asked = facts.stopping or {}
            stop_original(session, asked.get("timeout_s", _STOP_TIMEOUT_S), asked.get("port"))
        started = _find_restored(session, server["description"])
        if started is None:
            started = _start_original(session, server["description"])
    differences = started.pop("differences", None)
    if differences is None:
        differences = process.compare(server["description"], started["pid"])
    return dict(started, differences=differences)


def _stop_restored(session: SessionState, main: Dict[str, int]) -> None:
    asked = session.facts.stopping or {}
    timeout_s, port = asked.get("timeout_s", _STOP_TIMEOUT_S), asked.get("port")
    with session.step("stop:original", timeout_s=timeout_s, port=port) as done:
        value = process.stop(main, None, timeout_s, port, _read_description(session))
        done["left"] = value["left"]


def _was_stopped(facts: Facts) -> bool:
    begun = facts.stopped or facts.stopping is not None
    return begun and bool((facts.server or {}).get("ran")) and not facts.lost_server


def _start_original(session: SessionState, description: Value) -> Value:
    """In what it differs is journaled: its description is gone when somebody asks later."""
    with session.step("restore") as done:
        started: Value = dict(process.start(description, None, None))
        started["differences"] = process.compare(description, started["pid"])
        done.update(started)
    return started


def _find_restored(session: SessionState, description: Value) -> Optional[Value]:
    """The original where it runs again already.

    It may run without a journal line: whoever started it died before the line was written, the
    host came up again and started it, or something watches it that nobody knew of. One that was
    started while planned bytes were in place is refused: it is not ours to end, and not as before.
    """
    facts = session.facts
    begun = (facts.begun or {}).get("boot_id")
    unsure = facts.restoring is not None or begun != lease.read_boot_id()
    limit_s = time.monotonic() + (_EXEC_WAIT_S if unsure else 0.0)
    since = twin.find_since(description, facts)
    while True:
        found = twin.find_twin(description, since)
        if found is not None and twin.may_run_planned(found["start_time"], facts):
            raise Refusal("runs-planned", _RUNS_PLANNED % found["pid"], pid=found["pid"])
        if found is not None or time.monotonic() > limit_s:
            return found
        time.sleep(0.05)


def watch_restored(session: SessionState, started: Mapping[str, Any]) -> List[str]:
    """Look at a server that was just given back until it listens, or some seconds; in words that it
    has ended again.

    Nobody here knows when it is ready, but one that dies of what it lacks does so early.
    """
    described = _read_description(session) or {}
    ports = set(described.get("ports") or ())
    main = {"pid": started["pid"], "start_time": started["start_time"]}
    limit_s = time.monotonic() + (_WATCH_S if ports else 0.0)
    while process.is_alive(**main):
        if time.monotonic() > limit_s or ports.intersection(procfs.find_ports(started["pid"])):
            return []
        time.sleep(_LOOK_S)
    return ["the original server: process %d has ended again" % started["pid"]]


def forget_server(session: SessionState) -> None:
    """Remove the files that hold the true environment and command lines."""
    for name in (SERVER, LIVES):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(session.path(name))
