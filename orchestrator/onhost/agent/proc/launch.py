"""Starting a described process again: detached, with everything of its surroundings put back."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat as stat_module
from typing import Any, Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence

from ..refusal import Refusal
from . import commandline, procfs, surroundings

SESSION_VARIABLE = "SGLDBG_SESSION"
_PR_SET_CHILD_SUBREAPER = 36


class Change(NamedTuple):
    """How a start differs from the description: the debug life, or nothing at all.

    `stdout` and `stderr` are paths that are appended to; `None` means where the description says.
    `session` is put into the environment, so that `stop` finds what it leaves. `folder` is one
    that it has to see, wherever it runs.
    """

    stdout: Optional[str] = None
    stderr: Optional[str] = None
    argv: Optional[Sequence[str]] = None
    env_set: Mapping[str, str] = {}
    env_unset: Sequence[str] = ()
    cwd: Optional[str] = None
    session: Optional[str] = None
    folder: Optional[str] = None

    def make_entries(self, entries: Sequence[str]) -> List[str]:
        """The same of an environment that no table holds: what it changes stands once, at the end.

        Whatever else stands twice, or without a name, stays.
        """
        new = self.make_environ({})
        gone = {*new, *self.env_unset}
        kept = [e for e in entries if "=" not in e or e.partition("=")[0] not in gone]
        return kept + ["%s=%s" % item for item in new.items()]

    def make_environ(self, environ: Mapping[str, str]) -> Dict[str, str]:
        """That environment with the changes."""
        changed = dict(environ)
        changed.update(self.env_set)
        for name in self.env_unset:
            changed.pop(name, None)
        if self.session is not None:
            changed[SESSION_VARIABLE] = self.session
        return changed


class Launch(NamedTuple):
    """What to execute and where its output goes; `description` says in which surroundings.

    `entries` take the place of `environ` where they are more than a table can hold.
    """

    executable: str
    argv: List[str]
    environ: Dict[str, str]
    entries: Optional[List[str]]
    cwd: str
    description: Mapping[str, Any]
    outputs: Dict[int, int]


def start(description: Mapping[str, Any], change: Change) -> Dict[str, int]:
    """Start the described process, or a variant of it, in a process session of its own.

    What the description does not name is as the agent has it. Returns `pid` and `start_time`;
    raises `Refusal` (`start-failed`) with the reason where the program did not come to run.
    """
    launch = _make_launch(description, change)
    try:
        for fd, path in ((1, change.stdout), (2, change.stderr)):
            opened = _open_given(path) if path else _open_same(description, fd)
            if opened is not None:
                launch.outputs[fd] = opened
        return _spawn(launch)
    finally:
        for opened in launch.outputs.values():
            os.close(opened)


def find_outputs(description: Mapping[str, Any], change: Change) -> Dict[str, Any]:
    """The files that such a start would write to, and their sizes now: `stdout_from` and so on."""
    found: Dict[str, Any] = {}
    for name, path in (("stdout", change.stdout), ("stderr", change.stderr)):
        output = description.get(name) or {}
        if path is None and output.get("kind") == "file":
            path = output["path"]
        if path is not None:
            found[name] = path
            found[name + "_from"] = read_size(path)
    return found


def read_size(path: str) -> int:
    """The size of a file; 0 where there is none."""
    try:
        return os.stat(procfs.to_bytes(path)).st_size
    except OSError:
        return 0


def read_exit(pid: int) -> Optional[str]:
    """How a process that is our child ended: `exit status 1`, `signal 9 (SIGKILL)`, or `None`."""
    try:
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return None
    if info is None or info.si_pid != pid:
        return None
    if info.si_code == os.CLD_EXITED:
        return "exit status %d" % info.si_status
    names = {int(item): item.name for item in signal.Signals}
    return "signal %d (%s)" % (info.si_status, names.get(info.si_status, "real-time"))


def _make_launch(description: Mapping[str, Any], change: Change) -> Launch:
    described = description.get("environ")
    environ = change.make_environ(os.environ if described is None else described)
    folder = change.cwd or description.get("cwd") or "/"
    words = list(change.argv if change.argv is not None else description.get("argv") or [])
    if not words:
        raise Refusal("start-failed", "the server was not started: there is no command line")
    known = description.get("argv") or [None]
    executable = commandline.find_executable(words[0], environ, folder)
    if words[0] == known[0] and description.get("python"):
        executable = description["python"]
    if executable is None:
        raise Refusal("start-failed", "the server was not started: no program `%s`" % words[0])
    found = description.get("entries") if described is not None else None
    entries = change.make_entries(found) if found else None
    return Launch(executable, words, environ, entries, folder, description, {})


def open_log(path: str, mode: int) -> int:
    """A file to append to, made where there is none; raises `OSError` where anything else is.

    A pipe that nobody reads would hold the opener for ever, and a device takes words as orders.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    name = procfs.to_bytes(path)
    # Opening is an act already where it is a device: looked at first, and what was opened again.
    try:
        _require_file(os.stat(name))
    except FileNotFoundError:
        pass
    opened = os.open(name, flags, mode)
    try:
        _require_file(os.fstat(opened))
        os.set_blocking(opened, True)
    except OSError:
        os.close(opened)
        raise
    return opened


def _require_file(stat: os.stat_result) -> None:
    if stat_module.S_ISREG(stat.st_mode):
        return
    kinds = (
        (stat_module.S_ISFIFO, "a pipe"),
        (stat_module.S_ISSOCK, "a socket"),
        (stat_module.S_ISDIR, "a directory"),
    )
    found = next((name for test, name in kinds if test(stat.st_mode)), "a device")
    raise OSError(errno.EINVAL, "it is %s, not a file" % found)


def _open_given(path: str) -> int:
    try:
        return open_log(path, 0o600)
    except OSError as error:
        reason = "cannot open `%s`: %s" % (path, error.strerror)
        raise Refusal("start-failed", "the server was not started: %s" % reason) from None


def _open_same(description: Mapping[str, Any], fd: int) -> Optional[int]:
    """The very file that the process had, opened with our rights; `None` leaves it to the child.

    Only a file that the process itself held open may be opened with more rights than its user
    has: anything else under that name could be a link to a file of somebody else's.
    """
    output = _output(description, fd)
    if output.get("kind") != "file" or "inode" not in output:
        return None
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(procfs.to_bytes(output["path"]), flags)
    except OSError:
        return None
    stat = os.fstat(opened)
    same = (stat.st_dev, stat.st_ino) == (output.get("device"), output["inode"])
    if same and stat_module.S_ISREG(stat.st_mode):
        os.set_blocking(opened, True)
        return opened
    os.close(opened)
    return None


def _output(description: Mapping[str, Any], fd: int) -> Mapping[str, Any]:
    output: Mapping[str, Any] = description.get("stdout" if fd == 1 else "stderr") or {}
    return output


def _spawn(launch: Launch) -> Dict[str, int]:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    # For this moment only: the server becomes our child, so that its exit status can be known,
    # but no other orphan does, since nobody here would reap it.
    _adopt_orphans(True)
    try:
        child = os.fork()
        if child == 0:
            _fork_again(launch, writing)
        os.waitpid(child, 0)
    finally:
        _adopt_orphans(False)
        os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        # The end of the pipe is the moment of a successful exec, or comes with the reason.
        said = procfs.to_text(pipe.read())
    head, _, failure = said.partition("\n")
    if failure or not head:
        raise Refusal("start-failed", "the server was not started: %s" % (failure or "fork failed"))
    pid, start_time = head.split()
    return {"pid": int(pid), "start_time": int(start_time)}


def _adopt_orphans(wanted: bool) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def _fork_again(launch: Launch, writing: int) -> NoReturn:
    try:
        if os.fork() == 0:
            _become(launch, writing)
    except OSError as error:
        os.write(writing, b"0 0\nfork: %s" % procfs.to_bytes(str(error)))
    finally:
        os._exit(0)


def _become(launch: Launch, writing: int) -> NoReturn:
    """Turn this process into the launch; ends it with a reason in the pipe where that fails."""
    stage = "starting"
    try:
        stat = procfs.read_stat(os.getpid())
        os.write(writing, b"%d %d\n" % (os.getpid(), stat.start_time if stat else 0))
        for name, act in _steps(launch, writing):
            stage = name
            act()
    except BaseException as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else repr(error)
        os.write(writing, procfs.to_bytes("%s: %s" % (stage, reason)))
    finally:
        os._exit(127)


def _steps(launch: Launch, writing: int) -> List[Any]:
    """In this order: what needs our rights comes before the change of user, files after it."""
    description = launch.description
    return [
        ("a process session of its own", os.setsid),
        ("its surroundings", lambda: surroundings.restore_surroundings(description)),
        (
            "the user %s" % description.get("user", ""),
            lambda: surroundings.become_user(description),
        ),
        ("the directory `%s`" % launch.cwd, lambda: os.chdir(procfs.to_bytes(launch.cwd))),
        ("its output", lambda: _connect(launch)),
        ("its signals", lambda: surroundings.restore_signals(description)),
        ("its descriptors", lambda: _close_others(writing)),
        ("running `%s`" % launch.executable, lambda: _execute(launch)),
    ]


def _execute(launch: Launch) -> NoReturn:
    """Run it; a mapping, which `os.execve` wants, holds each name once and no entry without."""
    executable, argv = procfs.to_bytes(launch.executable), list(map(procfs.to_bytes, launch.argv))
    if launch.entries is None:
        items = launch.environ.items()
        os.execve(executable, argv, {procfs.to_bytes(k): procfs.to_bytes(v) for k, v in items})
    entries = list(map(procfs.to_bytes, launch.entries))
    if any(b"\0" in text for text in (*argv, *entries)):
        raise ValueError("embedded null byte")
    blocks = [(ctypes.c_char_p * (len(texts) + 1))(*texts, None) for texts in (argv, entries)]
    ctypes.CDLL(None, use_errno=True).execve(executable, *blocks)
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def _connect(launch: Launch) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    closed = []
    for fd in (1, 2):
        output = _output(launch.description, fd)
        if fd in launch.outputs:
            os.dup2(launch.outputs[fd], fd)
        elif output.get("kind") == "file":
            os.dup2(_open_described(output), fd)
        elif output.get("kind") == "closed":
            closed.append(fd)
        else:
            os.dup2(null, fd)
    for fd in closed:
        os.close(fd)


def _open_described(output: Mapping[str, Any]) -> int:
    try:
        return open_log(output["path"], output.get("mode", 0o644))
    except OSError as error:
        raise OSError(error.errno, "`%s`: %s" % (output["path"], error.strerror)) from None


def _close_others(writing: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd != writing:
            surroundings.attempt(os.close, fd)
