"""The detached process that undoes a session when nobody renews its lease any more."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from typing import Any, Dict, List, Optional

from ..files import claim
from ..held import lease
from ..held.lease import Lease
from ..held.state import JOURNAL, SessionState, was_ended
from ..proc.above.systemctl import find_bus
from ..refusal import Refusal
from ..server import life, process

# Everything that the guard will ever need is imported here: its zipapp and its interpreter's
# library may be gone by the time it acts.
from . import logout, recover
from .memory import Memory

__all__ = ["main", "process", "start"]

_POLL_S = 0.1
_START_WAIT_S = 20.0
# A lease that cannot be read for this long is as good as over; a directory that is gone comes
# back, if at all, in the moment in which somebody renames it.
_UNREADABLE_S = 3.0
_GONE_S = 0.5
# What keeps a revert from working (a read-only mount, a full disk) is mended by people; after
# that time the next contact does it.
_RETRY_S = 3600.0
_RETRY_DELAY_MAX_S = 30.0
# A word for those who want to know from when on the directory may be lost.
KNOWS_SERVER = "knows how the server runs"
_OVER, _LOST = "the lease ran out", "the session's directory was lost"
_NO_LEASE = "the session's lease was lost"


def start(directory: str) -> Dict[str, int]:
    """Start the guard of a session and return its `pid` and `start_time` once it watches.

    In a scope of its own where the end of a login session would else take it along; where it would
    not, or where that fails, simply detached.
    """
    said = []
    for command in make_commands(directory, logout.find_scope(os.geteuid())):
        answer = _ask(command)
        if "pid" in answer:
            return {"pid": answer["pid"], "start_time": answer["start_time"]}
        said.append(str(answer.get("error", "it said nothing")))
    raise Refusal("guard-failed", "the guard could not be started: %s" % "; ".join(said))


def make_commands(directory: str, scope: List[str]) -> List[List[str]]:
    """The command lines to try, best first; `scope` are the words that put one into a scope."""
    plain = [sys.executable, "-I", "-S", *_own_code(), directory]
    return [[*scope, *plain], plain] if scope else [plain]


def _own_code() -> List[str]:
    """How an interpreter runs this module from where it is: zipapp, unpacked, or source tree."""
    package = __package__ or ""
    root = os.path.abspath(__file__)
    for _ in range(package.count(".") + 2):
        root = os.path.dirname(root)
    program = "import sys; sys.path.insert(0, %r); from %s.guard import main; main(sys.argv[1])"
    return ["-c", program % (root, package)]


def _ask(command: List[str]) -> Dict[str, Any]:
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=dict(os.environ, **find_bus()),
            start_new_session=True,
        )
    except OSError as error:
        return {"error": str(error)}
    with child:
        try:
            out, err = child.communicate(timeout=_START_WAIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            return {"error": "no answer in %d s" % _START_WAIT_S}
    try:
        answer = json.loads(out.decode())
    except ValueError:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        return {"error": lines[-1] if lines else "it said nothing"}
    return answer if isinstance(answer, dict) else {}


def main(session_dir: str) -> int:
    """Detach, answer on what was stdout, watch; returns in the detached process only."""
    directory = os.path.abspath(session_dir)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.chdir("/")
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    answering = _detach()
    with lease.flocked(os.path.join(directory, "guard.lock"), 0.0) as alone:
        answer = lease.me().as_json() if alone else {"error": "a guard watches already"}
        os.write(answering, json.dumps(answer).encode() + b"\n")
        os.close(answering)
        if alone:
            _Guard(directory).watch()
    return 0


def _detach() -> int:
    answering = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    return answering


class _Guard:
    def __init__(self, directory: str) -> None:
        self._memory = Memory(directory)

    def trace(self, text: str) -> None:
        """Add a line to the guard's own trace; a full disk silences it, nothing more."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
        path = os.path.join(self._memory.directory, "guard.trace")
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, ("%s %s\n" % (stamp, text)).encode("utf-8", "replace"))
            finally:
                os.close(fd)

    def watch(self) -> None:
        """Wait until the session ended, was kept, or lost its holder; then undo it.

        One whose directory goes away without an end is undone from memory: nobody can hold it
        any more, and nobody else could undo it.
        """
        self.trace("watching as process %d" % os.getpid())
        unreadable_s, knew = 0.0, False
        while True:
            found = self._look()
            if self._memory.knows_server and not knew:
                self.trace(KNOWS_SERVER)
                knew = True
            if self._is_over():
                return
            if found is not None and (found.ended or found.is_kept()):
                self.trace("leaving: the session %s" % ("ended" if found.ended else "is kept"))
                return
            if found is None or self._memory.lost:
                unreadable_s += _POLL_S
            else:
                unreadable_s = 0.0
            limit_s = _GONE_S if self._memory.lost else _UNREADABLE_S
            if unreadable_s > limit_s or (found is not None and not found.is_live()):
                self._undo_patiently(self._name_cause(found))
                return
            # Unlike sleep(3) under what people preload into everything, this never fails.
            select.select((), (), (), _pause(found))

    def _look(self) -> Optional[Lease]:
        """The lease; whatever keeps it from being read must not end who watches it."""
        try:
            return self._memory.look()
        except Exception:
            self.trace(traceback.format_exc())
            return None

    def _is_over(self) -> bool:
        """Whether the directory is gone because somebody has ended the session, or never began."""
        directory = self._memory.directory
        if os.path.exists(os.path.join(directory, JOURNAL)):
            return False
        return self._memory.is_empty or was_ended(directory)

    def _name_cause(self, found: Optional[Lease]) -> str:
        if self._memory.lost:
            return _LOST
        return _NO_LEASE if found is None else _OVER

    def _undo_patiently(self, cause: str) -> None:
        self.trace(cause)
        delay_s, limit_s = 0.5, time.monotonic() + _RETRY_S
        session: Optional[SessionState] = None
        while time.monotonic() < limit_s:
            try:
                self._memory.look()
                if self._is_over():
                    return
                if session is None or self._memory.lost:
                    if session is not None:
                        session.close()
                        session = None  # whatever comes next may fail
                    session = self._take_over()
                if self._undo(session, cause):
                    return
            except Refusal as refusal:
                self.trace("refused: %s: %s" % (refusal.code, refusal.message))
                if refusal.code == "fenced" or refusal.data.get("ended"):
                    return  # somebody else undoes it
            except Exception:
                self.trace(traceback.format_exc())
            time.sleep(delay_s)
            delay_s = min(delay_s * 2, _RETRY_DELAY_MAX_S)
        self.trace("giving up after %d s: the next contact has to undo it" % _RETRY_S)

    def _take_over(self) -> SessionState:
        lost = self._memory.lost
        try:
            self._memory.give_back()
        except OSError as error:
            self.trace("the directory cannot be written: %s" % error)
            self._memory.move()
        session = recover.take_over(self._memory.directory, lease.GUARD, 30.0, lost=lost)
        if session.is_moved:  # the next contact has to find it, should anything be left
            claim.show(session, session.check())
        return session

    def _undo(self, session: SessionState, cause: str) -> bool:
        """Run the tail once; true where nothing is left that another try could better."""
        with session.locked():
            value = recover.run_tail(session, trace=self.trace)
            for text in describe(value, cause):
                self.trace(text)
                if text not in session.facts.report:  # once, however many tries it takes
                    session.note("report", by=lease.GUARD, text=text)
            is_back = value["server"] is not None or not (session.facts.server or {}).get("ran")
            if not value["left"]:
                # How the server runs stays known until the session is ended: it may end again while
                # it loads, and a revert is asked to start it once more then.
                self._memory.forget_place()
                return True
            drifted = [report for report in value["files"] if report["state"] == "drift"]
            # Where the whole install is gone its disk may come back.
            is_there = os.path.isdir(session.facts.package_dir)
            is_last = is_there and len(drifted) == len(value["left"])
            if is_last and is_back and session.is_moved:
                life.forget_server(session)  # nobody needs it, and that place is not its home
        return is_last


def _pause(found: Optional[Lease]) -> float:
    if found is None or found.deadline_s is None or found.by != lease.AGENT:
        return _POLL_S
    return min(_POLL_S, max(0.001, found.deadline_s - lease.now_s()))


def describe(value: Dict[str, Any], cause: str) -> List[str]:
    """What became of everything, in lines for the next contact."""
    back = sum(report["state"] in ("reverted", "removed") for report in value["files"])
    lines = ["%s: %d of %d files put back" % (cause, back, len(value["files"]))]
    if value["verified"] and value["files"]:
        lines[0] += ", all verified"
    server = value["server"]
    if server is not None:
        differences = "; ".join(server["differences"]) or "no differences"
        lines.append("the original server runs as process %d (%s)" % (server["pid"], differences))
    return lines + ["left: %s" % text for text in value["left"]]
