"""A server that is a unit of systemd: looked up, stopped, started, its debug life by a drop-in."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Mapping, Optional, Set

from ...proc import below, mains, procfs
from ...proc.above import systemctl
from ...proc.above.owner import name_process
from ...proc.launch import Change, find_outputs
from ...proc.supervisor import read_cgroups
from ...refusal import Refusal
from . import dropin

# `StandardOutput=append:` came with 240.
_OLDEST = 240
_START_S = 60.0
_POLL_S = 0.1
# systemd gives them to each life anew; those of the former one must not be handed on.
OWN_VARIABLES = (
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "NOTIFY_SOCKET",
    "SYSTEMD_EXEC_PID",
    "MAINPID",
    "MANAGERPID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "FDSTORE",
    "CREDENTIALS_DIRECTORY",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
)


def look(unit: str, package: str) -> Dict[str, Any]:
    """The unit's state: `unit` (its full name), `active`, `main`, `tree` (pids), `file`, `others`.

    `others` are units that run now and would go down with it, `beside` in words what it runs beside
    servers of `package` and whoever waits for them. Codes `no-systemd`, `no-unit`.
    """
    version = systemctl.ctl(["--version"])
    number = re.match(r"systemd (\d+)", version.out)
    if version.code != 0 or number is None:
        raise Refusal("no-systemd", "there is no systemd: %s" % (version.said or version.out))
    if int(number.group(1)) < _OLDEST:
        message = "systemd %s is too old, %d or newer is needed" % (number.group(1), _OLDEST)
        raise Refusal("no-systemd", message)
    state = systemctl.parse(systemctl.answered(systemctl.ask(unit)))
    if state.get("LoadState") != "loaded":
        how = state.get("LoadState") or "not found"
        raise Refusal("no-unit", "unit `%s` is %s" % (unit, how), unit=unit)
    main = int(state.get("MainPID") or 0)
    processes = procfs.read_all()
    tree = _find_all(main, state.get("ControlGroup", ""), processes)
    return {
        "unit": state["Id"],
        "active": state["ActiveState"],
        "main": main,
        "tree": tree,
        "file": state.get("FragmentPath", ""),
        "others": _list_active(state),
        "beside": [name_process(pid) for pid in _find_beside(tree, package, processes)],
    }


def _find_all(main: int, group: str, processes: Dict[int, procfs.Stat]) -> List[int]:
    """All that a stop of the unit would end: what left its parent is in its control group still."""
    below_main = {stat.pid for stat in procfs.find_tree(main, processes)} if main else set()
    members = {pid for pid in processes if _is_in(pid, group)} if main and group else set()
    return sorted(below_main | members)


def _is_in(pid: int, group: str) -> bool:
    paths = {line.split(":", 2)[-1] for line in read_cgroups(pid)}
    return any(path == group or path.startswith(group + "/") for path in paths)


def _find_beside(tree: List[int], package: str, processes: Dict[int, procfs.Stat]) -> List[int]:
    """The outermost processes of a unit that are no server's and wait for none."""
    heads = [pid for pid in below.find_heads(package, processes) if pid in tree]
    known = {stat.pid for pid in heads for stat in below.find_family(pid, package, processes)}
    known |= {stat.pid for pid in heads for stat in procfs.find_ancestors(pid, processes)}
    rest = [pid for pid in tree if heads and pid not in known and processes[pid].alive]
    strangers = {pid for pid in rest if processes[pid].ppid not in rest}
    return sorted(pid for pid in strangers if not processes[pid].is_copy)


def _list_active(state: Mapping[str, str]) -> List[str]:
    """Services that systemd would stop along with this one, and would not start again with it."""
    names: Set[str] = set()
    for name in systemctl.TOGETHER:
        names.update(word for word in state.get(name, "").split() if not word.endswith(".target"))
    states = {n: systemctl.parse(systemctl.answered(systemctl.ask(n))) for n in names}
    running = ("active", "activating")
    return sorted(name for name, state in states.items() if state.get("ActiveState") in running)


def start_debug(
    way: Mapping[str, Any], description: Mapping[str, Any], change: Change
) -> Dict[str, Any]:
    """Start the unit with a drop-in that carries the debug life; it is gone after a reboot.

    The drop-in names the running server's own environment, since a script of the unit may have
    made it, in a file that only its owner may read: what a unit sets, everybody may ask for.
    """
    assert change.stdout is not None
    assert change.stderr is not None
    environ = dict(description.get("environ") or {})
    for name in OWN_VARIABLES:
        environ.pop(name, None)
    file = os.path.join(os.path.dirname(change.stderr), "debug.env")
    dropin.write(file, dropin.make_environment_file(change.make_environ(environ)), 0o600)
    words = list(change.argv if change.argv is not None else description["argv"])
    text = dropin.make(
        str(description["python"]),
        words,
        change.cwd or str(description["cwd"]),
        file,
        change.env_unset,
        (change.stdout, change.stderr),
        # Without a place of its own it sees the folder, and would get such a place by this alone.
        change.folder if "mnt" in (description.get("namespaces") or ()) else None,
    )
    dropin.place(way["unit"], text)
    outputs = find_outputs(description, change)
    return dict(_start(way), **outputs)


def start_original(way: Mapping[str, Any], description: Mapping[str, Any]) -> Dict[str, Any]:
    """Start the unit as its owner wrote it."""
    dropin.remove(way["unit"])
    outputs = find_outputs(description, Change())
    return dict(_start(way), unit=way["unit"], **outputs)


def stop(way: Mapping[str, Any], timeout_s: float, debug: bool) -> List[str]:
    """Stop the unit, after a debug life without leaving its drop-in; in words what failed."""
    left = []
    done = systemctl.ctl(["stop", way["unit"]], timeout_s)
    if done.code == -1:  # it waits for the unit's own time-out, mostly 90 s
        systemctl.ctl(["kill", "--signal=SIGKILL", way["unit"]])
        done = systemctl.ctl(["stop", way["unit"]])
    if done.code != 0:
        left.append("`systemctl stop %s` failed: %s" % (way["unit"], done.said))
    if debug:
        # A debug life that failed counts against the unit's limit of starts.
        systemctl.ctl(["reset-failed", way["unit"]])
        try:
            dropin.remove(way["unit"])
        except Refusal as refusal:
            left.append(refusal.message)
        except OSError as error:
            left.append("the drop-in of %s is still there: %s" % (way["unit"], error))
    return left


def read_journal(unit: str, lines: int, invocation: Optional[str] = None) -> bytes:
    """The last lines of one life of a unit in the journal, of the latest where none is named.

    A unit that is started again by itself has another life by the time that one looks for the
    last words of the first. Empty where nobody keeps any.
    """
    invocation = invocation or systemctl.show(unit).get("InvocationID")
    if not invocation:
        return b""
    systemctl.run(
        ["journalctl", "--sync"], systemctl.ANSWER_S
    )  # what was printed last may be on its way yet
    command = ["journalctl", "--no-pager", "--quiet", "--output=cat", "--lines=%d" % lines]
    # What it printed, and what systemd says of it.
    matches = ["_SYSTEMD_INVOCATION_ID=" + invocation, "+", "INVOCATION_ID=" + invocation]
    done = systemctl.run([*command, *matches], systemctl.ANSWER_S)
    return procfs.to_bytes(done.out) if done.code == 0 else b""


def _start(way: Mapping[str, Any]) -> Dict[str, Any]:
    # A unit that counts as started late would hold up the look at it; `mains` waits itself.
    systemctl.must(["start", "--no-block", way["unit"]], "the server was not started")
    deadline = time.monotonic() + float(way.get("start_timeout_s") or _START_S)
    while True:
        state = systemctl.show(way["unit"])
        found = _find_main(int(state.get("MainPID") or 0), way["package"])
        if found is not None:
            life = {"pid": found.pid, "start_time": found.start_time}
            return dict(life, invocation=state.get("InvocationID"))
        active = state.get("ActiveState", "unknown")
        over = time.monotonic() >= deadline
        if over or (active in ("failed", "inactive") and not _is_queued(state)):
            how = "is %s (%s)" % (active, state.get("Result") or "no result")
            tail = read_journal(way["unit"], 20).decode("utf-8", "replace").splitlines()
            message = "the server was not started: unit `%s` %s" % (way["unit"], how)
            raise Refusal("start-failed", message, tail=tail)
        time.sleep(_POLL_S)


def _is_queued(state: Mapping[str, str]) -> bool:
    """Whether the manager had not come to start it yet, as of the same answer as its state.

    Asked later, a unit that has started in between would count as one that never will.
    """
    return state.get("Job", "") not in ("", "0")


def _find_main(main: int, package: str) -> Optional[procfs.Stat]:
    """The server's main process at or below the unit's; a script may stand between them."""
    if not main:
        return None
    tree = procfs.find_tree(main, procfs.read_all())
    return next((s for s in tree if s.alive and mains.is_main(s.pid, package)), None)
