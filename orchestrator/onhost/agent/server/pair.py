"""A server that two commands of the user's stop and start, whatever stands behind them."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ..look.tail import read_tail
from ..proc import arguments, launch, procfs
from ..proc.mains import find_mains
from ..refusal import Refusal

# What a start may take until a main process is there, where nobody said how long.
_START_S = 300.0
# A start command that ended without an error may have handed on its work a moment ago.
_SETTLE_S = 60.0
_POLL_S = 0.1
_TAIL_LINES = 20
# Of what a stop command says the last line is told; a pipe holds as much at once.
_SAID_LIMIT = 64 << 10
_EMPTY: Mapping[str, Any] = {"values": {}, "unknown": []}


def start(
    way: Mapping[str, Any], description: Mapping[str, Any], change: launch.Change
) -> Dict[str, Any]:
    """Run the start command and wait for the main process that comes of it.

    The command is left running where it stays in the foreground. Its output goes to the files of
    the change, else to the way's log. `missing` names what of the change did not reach the
    server: the command has to hand on its environment.
    """
    words = list(change.argv if change.argv is not None else way["start"])
    before = _list_mains(way["package"])
    sizes = launch.find_outputs(description, launch.Change())
    child = _run(words, change, way)
    try:
        found = _wait_for_main(child, words, way, description, before, change)
    except Refusal:
        # Nothing of it may come up later, when nobody counts with it any more.
        if child.poll() is None:
            child.kill()
            child.wait()
        raise
    started: Dict[str, Any] = {"pid": found["pid"], "start_time": found["start_time"]}
    started.update(_find_outputs(found, sizes))
    if change.session is not None:
        started["missing"] = _find_missing(found, change)
    return started


def stop(way: Mapping[str, Any], timeout_s: float) -> List[str]:
    """Run the stop command; in words what it said where it failed."""
    words = way["stop"]
    try:
        child = subprocess.Popen(
            words,
            env=_make_environ(launch.Change()),
            cwd=_find_home(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        return ["`%s` cannot be run: %s" % (shlex.join(words), error.strerror)]
    with child:
        text = _listen(child, time.monotonic() + timeout_s).decode("utf-8", "replace")
        status = child.poll()
        if status is None:
            child.kill()
    if status == 0:
        return []
    how = "did not end within %g s" % timeout_s if status is None else _name_status(status)
    lines = text.strip().splitlines()
    return ["`%s` %s%s" % (shlex.join(words), how, ": %s" % lines[-1] if lines else "")]


def _listen(child: Any, deadline: float) -> bytes:
    """The last of what a command says until it has ended, or until the deadline.

    Its own end counts: what it leaves in the background (a master of ssh's, a follower of logs)
    may hold its output for as long as it likes.
    """
    fd, said = child.stdout.fileno(), b""
    os.set_blocking(fd, False)
    while True:
        # Asked first: all that it said before its end is in the pipe then.
        ended = child.poll() is not None
        try:
            said = (said + os.read(fd, _SAID_LIMIT))[-_SAID_LIMIT:]
        except BlockingIOError:
            pass
        if ended or time.monotonic() >= deadline:
            return said
        try:
            child.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            pass


def _run(words: Sequence[str], change: launch.Change, way: Mapping[str, Any]) -> Any:
    files = []
    try:
        for path in (change.stdout or way["log"], change.stderr or way["log"]):
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            files.append(launch.open_log(path, 0o600))
        return subprocess.Popen(
            words,
            env=_make_environ(change),
            cwd=_find_home(),
            stdin=subprocess.DEVNULL,
            stdout=files[0],
            stderr=files[1],
            start_new_session=True,
        )
    except OSError as error:
        message = "the server was not started: `%s`: %s" % (shlex.join(words), error.strerror)
        raise Refusal("start-failed", message) from None
    finally:
        for fd in files:
            os.close(fd)


def _find_home() -> str:
    home = os.path.expanduser("~")
    return home if os.path.isdir(home) else "/"


def _make_environ(change: launch.Change) -> Dict[str, str]:
    """The agent's own environment without what is ours, and with the change."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SGLDBG_")}
    return change.make_environ(own)


def _wait_for_main(
    child: Any,
    words: Sequence[str],
    way: Mapping[str, Any],
    description: Mapping[str, Any],
    before: Set[Tuple[int, int]],
    change: launch.Change,
) -> Mapping[str, Any]:
    deadline = time.monotonic() + float(way.get("start_timeout_s") or _START_S)
    while True:
        status = child.poll()
        mains = find_mains(way["package"])
        new = [m for m in mains if (m["pid"], m["start_time"]) not in before]
        fitting = find_fitting(new, words, description)
        if len(fitting) == 1:
            return fitting[0]
        if status:
            how = _name_status(status)
            raise _failed(words, how, change.stderr or way["log"])
        if status == 0:
            deadline = min(deadline, time.monotonic() + _SETTLE_S)
            status = None
        if time.monotonic() >= deadline:
            how = "brought up no main process of `%s`" % way["package"]
            raise _failed(words, how, change.stderr or way["log"])
        time.sleep(_POLL_S)


def find_fitting(
    mains: Sequence[Mapping[str, Any]], words: Sequence[str], description: Mapping[str, Any]
) -> List[Mapping[str, Any]]:
    """Of these the ones that the start command may have brought up.

    Somebody else may start a server of theirs at the same time, with the same arguments in a
    container: of several, those in the kinds of namespaces of the described one are meant.
    """
    fitting = [found for found in mains if _is_like(found, words, description)]
    kinds = description.get("namespaces") or []
    return [found for found in fitting if found["namespaces"] == kinds] or fitting


def _is_like(
    found: Mapping[str, Any], words: Sequence[str], description: Mapping[str, Any]
) -> bool:
    """Whether a command line has the port and node rank of the start command, or of the original.

    No two servers of one network share both.
    """
    asked, known = arguments.find_words(words), description.get("given") or _EMPTY
    for name in ("port", "node_rank"):
        if name in found["given"]["unknown"] or (name not in asked and name in known["unknown"]):
            continue
        if found["given"]["values"].get(name) != asked.get(name, known["values"].get(name)):
            return False
    return True


def _list_mains(package: str) -> Set[Tuple[int, int]]:
    return {(found["pid"], found["start_time"]) for found in find_mains(package)}


def _failed(words: Sequence[str], how: str, log: str) -> Refusal:
    try:
        tail = read_tail(log, _TAIL_LINES).decode("utf-8", "replace").splitlines()
    except Refusal:
        tail = []
    message = "the server was not started: `%s` %s" % (shlex.join(words), how)
    return Refusal("start-failed", message, tail=tail)


def _name_status(status: int) -> str:
    return (
        "was ended by signal %d" % -status if status < 0 else "ended with exit status %d" % status
    )


def _find_outputs(found: Mapping[str, Any], sizes: Mapping[str, Any]) -> Dict[str, Any]:
    """Where the server itself writes to; a file that it had before goes on from its old size."""
    outputs: Dict[str, Any] = {}
    for name in ("stdout", "stderr"):
        output: Mapping[str, Optional[str]] = found[name]
        if output.get("kind") == "file":
            outputs[name] = output["path"]
            same = sizes.get(name) == output["path"]
            outputs[name + "_from"] = sizes[name + "_from"] if same else 0
    return outputs


def _find_missing(found: Mapping[str, Any], change: launch.Change) -> List[str]:
    environ = procfs.read_environ(found["pid"])
    if environ is None:
        return []
    wanted = change.make_environ({})
    wanted.pop(launch.SESSION_VARIABLE, None)
    return sorted(name for name in wanted if environ.get(name) != wanted[name])
