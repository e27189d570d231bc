"""A server that is a unit of systemd: looked up, stopped, started, its debug life by a drop-in."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from ..proc import below, mains, procfs
from ..proc.above.owner import name_process
from ..proc.launch import Change, find_outputs
from ..refusal import Refusal

# Drop-ins are read in the order of their names, whatever directory they lie in; later ones win.
DROP_IN = "zz-sgldbg.conf"
# `StandardOutput=append:` came with 240.
_OLDEST = 240
_SHOW_S = 10.0
_START_S = 60.0
_POLL_S = 0.1
_RUNTIME = re.compile(r"/run/(?:user/\d+/)?systemd/(?:system|user)$")
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
_TOGETHER = ("ConsistsOf", "BoundBy", "RequiredBy")
_SHOWN = (
    *_TOGETHER,
    "Id",
    "LoadState",
    "ActiveState",
    "Result",
    "Job",
    "MainPID",
    "InvocationID",
    "FragmentPath",
)


class _Done(NamedTuple):
    code: int
    out: str
    said: str


def look(unit: str, package: str) -> Dict[str, Any]:
    """The unit's state: `unit` (its full name), `active`, `main`, `tree` (pids), `file`, `others`.

    `others` are units that run now and would go down with it, `beside` in words what it runs beside
    servers of `package` and whoever waits for them. Codes `no-systemd`, `no-unit`.
    """
    version = _ctl(["--version"])
    number = re.match(r"systemd (\d+)", version.out)
    if version.code != 0 or number is None:
        raise Refusal("no-systemd", "there is no systemd: %s" % (version.said or version.out))
    if int(number.group(1)) < _OLDEST:
        message = "systemd %s is too old, %d or newer is needed" % (number.group(1), _OLDEST)
        raise Refusal("no-systemd", message)
    asked = _ask(unit)
    if asked.code != 0:
        raise Refusal("no-systemd", "systemd does not answer: %s" % asked.said)
    state = _parse(asked.out)
    if state.get("LoadState") != "loaded":
        how = state.get("LoadState") or "not found"
        raise Refusal("no-unit", "unit `%s` is %s" % (unit, how), unit=unit)
    main = int(state.get("MainPID") or 0)
    processes = procfs.read_all()
    tree = [stat.pid for stat in procfs.find_tree(main, processes)] if main else []
    return {
        "unit": state["Id"],
        "active": state["ActiveState"],
        "main": main,
        "tree": tree,
        "file": state.get("FragmentPath", ""),
        "others": _list_active(state),
        "beside": [name_process(pid) for pid in _find_beside(tree, package, processes)],
    }


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
    for name in _TOGETHER:
        names.update(word for word in state.get(name, "").split() if not word.endswith(".target"))
    return sorted(n for n in names if _show(n).get("ActiveState") in ("active", "activating"))


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
    _write(file, make_environment_file(change.make_environ(environ)), 0o600)
    words = list(change.argv if change.argv is not None else description["argv"])
    text = make_drop_in(
        str(description["python"]),
        words,
        change.cwd or str(description["cwd"]),
        file,
        change.env_unset,
        (change.stdout, change.stderr),
        # Without a place of its own it sees the folder, and would get such a place by this alone.
        change.folder if "mnt" in (description.get("namespaces") or ()) else None,
    )
    folder = _drop_in_dir(way["unit"])
    os.makedirs(folder, 0o755, exist_ok=True)
    _write(os.path.join(folder, DROP_IN), text, 0o644)
    _must(["daemon-reload"], "the server was not started")
    outputs = find_outputs(description, change)
    return dict(_start(way), **outputs)


def start_original(way: Mapping[str, Any], description: Mapping[str, Any]) -> Dict[str, Any]:
    """Start the unit as its owner wrote it."""
    _remove_drop_in(way["unit"])
    outputs = find_outputs(description, Change())
    return dict(_start(way), unit=way["unit"], **outputs)


def stop(way: Mapping[str, Any], timeout_s: float, debug: bool) -> List[str]:
    """Stop the unit, after a debug life without leaving its drop-in; in words what failed."""
    left = []
    done = _ctl(["stop", way["unit"]], timeout_s)
    if done.code == -1:  # it waits for the unit's own time-out, mostly 90 s
        _ctl(["kill", "--signal=SIGKILL", way["unit"]])
        done = _ctl(["stop", way["unit"]])
    if done.code != 0:
        left.append("`systemctl stop %s` failed: %s" % (way["unit"], done.said))
    if debug:
        # A debug life that failed counts against the unit's limit of starts.
        _ctl(["reset-failed", way["unit"]])
        try:
            _remove_drop_in(way["unit"])
        except Refusal as refusal:
            left.append(refusal.message)
        except OSError as error:
            left.append("the drop-in of %s is still there: %s" % (way["unit"], error))
    return left


def make_drop_in(
    python: str,
    words: Sequence[str],
    cwd: str,
    environment_file: str,
    unset: Sequence[str],
    outputs: Sequence[str],
    shown: Optional[str] = None,
) -> str:
    """The drop-in that makes a unit run this command line in these surroundings.

    What would start it again or end it by itself is off: a debug life that dies is to be seen.
    `shown` is a folder that it sees though its `/tmp` is its own and other folders are read-only.
    """
    command = ['"@%s"' % _quote(python, variables=False)] + ['"%s"' % _quote(w) for w in words]
    lines = [
        "# Written by sgldbg for the time of one session; it goes away with it, or at a reboot.",
        "[Service]",
        "ExecStart=",
        "ExecStart=%s" % " ".join(command),
        "Type=simple",
        "PIDFile=",
        "Restart=no",
        "WatchdogSec=0",
        "RuntimeMaxSec=infinity",
        "TimeoutStartSec=infinity",
        "WorkingDirectory=%s" % cwd.replace("%", "%%"),
        "Environment=",
        "PassEnvironment=",
        "EnvironmentFile=",
        "EnvironmentFile=%s" % environment_file.replace("%", "%%"),
        *["UnsetEnvironment=%s" % name for name in unset],
        "StandardOutput=append:%s" % outputs[0].replace("%", "%%"),
        "StandardError=append:%s" % outputs[1].replace("%", "%%"),
        *(['BindPaths="%s"' % shown.replace("%", "%%")] if shown else []),
    ]
    return "\n".join(lines) + "\n"


def make_environment_file(environ: Mapping[str, str]) -> str:
    """These variables as systemd.exec(5) reads them from an `EnvironmentFile=`."""
    lines = []
    for name in sorted(environ):
        value = re.sub(r'(["\\`$])', r"\\\1", environ[name])
        lines.append('%s="%s"\n' % (name, value))
    return "".join(lines)


def _quote(word: str, variables: bool = True) -> str:
    """A word of `ExecStart=` between double quotes: escapes as in C, specifiers, variables."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if variables:
        text = text.replace("$", "$$")
    return "".join(c if c >= " " else "\\x%02x" % ord(c) for c in text)


def read_journal(unit: str, lines: int, invocation: Optional[str] = None) -> bytes:
    """The last lines of one life of a unit in the journal, of the latest where none is named.

    A unit that is started again by itself has another life by the time that one looks for the
    last words of the first. Empty where nobody keeps any.
    """
    invocation = invocation or _show(unit).get("InvocationID")
    if not invocation:
        return b""
    _run(["journalctl", "--sync"], _SHOW_S)  # what was printed last may be on its way yet
    command = ["journalctl", "--no-pager", "--quiet", "--output=cat", "--lines=%d" % lines]
    # What it printed, and what systemd says of it.
    matches = ["_SYSTEMD_INVOCATION_ID=" + invocation, "+", "INVOCATION_ID=" + invocation]
    done = _run([*command, *matches], _SHOW_S)
    return procfs.to_bytes(done.out) if done.code == 0 else b""


def _start(way: Mapping[str, Any]) -> Dict[str, Any]:
    # A unit that counts as started late would hold up the look at it; `mains` waits itself.
    _must(["start", "--no-block", way["unit"]], "the server was not started")
    deadline = time.monotonic() + float(way.get("start_timeout_s") or _START_S)
    while True:
        state = _show(way["unit"])
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


def _drop_in_dir(unit: str) -> str:
    paths = _ctl(["show", "--property=UnitPath"]).out.strip().partition("=")[2].split()
    runtime = next((path for path in paths if _RUNTIME.search(path)), None)
    if runtime is None:
        raise Refusal("no-systemd", "systemd reads no units from a directory below /run")
    return os.path.join(runtime, unit + ".d")


def _remove_drop_in(unit: str) -> None:
    folder = _drop_in_dir(unit)
    try:
        os.unlink(os.path.join(folder, DROP_IN))
    except FileNotFoundError:
        return
    with contextlib.suppress(OSError):  # others' drop-ins may lie there
        os.rmdir(folder)
    _must(["daemon-reload"], "the unit `%s` still has the debug life" % unit)


def _write(path: str, text: str, mode: int) -> None:
    """By rename, so that systemd never reads half of it."""
    new = path + ".new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(procfs.to_bytes(text))
    os.rename(new, path)


def _show(unit: str) -> Dict[str, str]:
    return _parse(_ask(unit).out)


def _ask(unit: str) -> _Done:
    return _ctl(["show", *("--property=" + name for name in _SHOWN), "--", unit])


def _parse(text: str) -> Dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in pairs}


def _must(words: Sequence[str], what: str) -> None:
    done = _ctl(words)
    if done.code != 0:
        shown = "`systemctl %s`" % " ".join(words)
        raise Refusal("start-failed", "%s: %s failed: %s" % (what, shown, done.said))


def _ctl(words: Sequence[str], timeout_s: float = _SHOW_S) -> _Done:
    """A user's own manager is asked by everybody but root."""
    scope = ["--user"] if os.geteuid() else []
    return _run(["systemctl", *scope, "--no-ask-password", *words], timeout_s)


def _find_bus() -> Dict[str, str]:
    """Where a user's own manager listens, which `sudo -u`, `su` and some logins do not say."""
    folder = "/run/user/%d" % os.geteuid()
    known = "XDG_RUNTIME_DIR" in os.environ or not os.path.isdir(folder)
    return {} if known else {"XDG_RUNTIME_DIR": folder}


def _run(command: Sequence[str], timeout_s: float) -> _Done:
    try:
        done = subprocess.run(
            command,
            env=dict(os.environ, LC_ALL="C", SYSTEMD_PAGER="", **_find_bus()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return _Done(-1, "", "no answer within %g s" % timeout_s)
    except OSError as error:
        return _Done(-1, "", "%s: %s" % (command[0], error.strerror))
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    last = said[-1] if said else "exit status %d" % done.returncode
    return _Done(done.returncode, procfs.to_text(done.stdout), last)
