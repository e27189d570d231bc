"""The description of a process from which it can be started again exactly as it was."""

from __future__ import annotations

import os
import re
import stat as stat_module
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..refusal import Refusal
from . import (
    arguments,
    below,
    commandline,
    limits,
    mempolicy,
    namespaces,
    priority,
    procfs,
    supervisor,
    traits,
)
from .above import owner

Description = Dict[str, Any]

_PUBLIC = (
    "pid",
    "start_time",
    "argv",
    "cwd",
    "uid",
    "user",
    "exe",
    "python",
    "ports",
    "listening",
    "given",
    "stdout",
    "stderr",
    "cgroup",
    "supervisor",
    "owner",
    "wrapper",
    "is_script",
    "strangers",
    "namespaces",
    "readable",
    "restorable",
    "needs_output",
    "why",
)
# What of an owner decides what to write into the inventory.
_OWNER = ("kind", "program", "unit", "manager")
_NULL = os.makedev(1, 3)
_SHOWN_OUTPUT = ("kind", "path")


def describe(pid: int, start_time: Optional[int] = None) -> Description:
    """All that is needed to start this process again; what we may not read is absent.

    `environ` holds secrets: the description must never leave the host, see `public`. Raises
    `Refusal` (`gone`) where the process ended or the number belongs to another one by now.
    """
    processes = procfs.read_all()
    stat = processes.get(pid)
    if stat is None or not stat.alive or (start_time is not None and stat.start_time != start_time):
        raise Refusal("gone", "process %d is gone" % pid, pid=pid)
    data = procfs.read_cmdline(pid)
    listening = procfs.find_listening(pid)
    description: Description = {
        "pid": pid,
        "start_time": stat.start_time,
        "argv": _parse_argv(data),
        "intact": not _is_title(data),
        "cwd": procfs.read_link("/proc/%d/cwd" % pid),
        "exe": procfs.read_link("/proc/%d/exe" % pid),
        "environ": procfs.read_environ(pid),
        "ports": sorted({item.port for item in listening}),
        "listening": [[address, item.port] for item in listening for address in item.addresses],
        "stdout": describe_output(pid, 1),
        "stderr": describe_output(pid, 2),
        "cgroups": supervisor.read_cgroups(pid),
        "namespaces": namespaces.find_foreign(pid),
    }
    description.update(_read_neighbours(pid, processes))
    description.update(_read_identity(pid))
    description.update(_read_scheduling(pid))
    description.update(traits.read_traits(pid))
    description["cgroup"] = supervisor.find_path(description["cgroups"])
    description["python"] = _find_python(description)
    description["given"] = _find_given(description)
    description["readable"] = description["environ"] is not None
    if procfs.read_stat(pid) is None:
        raise Refusal("gone", "process %d is gone" % pid, pid=pid)
    return judge({name: value for name, value in description.items() if value is not None})


def public(description: Description) -> Description:
    """What may be shown and stored of a description; the environment never is."""
    shown = {name: description.get(name) for name in _PUBLIC}
    for name in ("stdout", "stderr"):
        output = description.get(name, {})
        shown[name] = {key: output[key] for key in _SHOWN_OUTPUT if key in output}
    return shown


def with_output(description: Description, path: str) -> Description:
    """The same description, with `path` in the place of outputs that cannot be given back.

    The file is made where it does not exist, and opened now: that it cannot be written must not
    come to light when the server is to be started again.
    """
    changed = dict(description)
    for name in ("stdout", "stderr"):
        if _lost_output(name, description.get(name, {})):
            changed[name] = _make_output(path)
    return judge(changed)


def with_way(description: Description, way: Mapping[str, Any]) -> Description:
    """The same description of a server that is started and stopped by somebody else."""
    return judge(dict(description, way=dict(way)))


def with_command(
    description: Description, argv: Sequence[str], environ: Mapping[str, str], cwd: Optional[str]
) -> Description:
    """The same description where a title has overwritten what the process was started with.

    Its surroundings and its output are still known; command line, environment and directory are
    what the inventory says. An intact one is returned as it is.
    """
    if description.get("intact", True):
        return description
    changed = dict(description, argv=list(argv), environ=dict(environ), intact=True)
    changed.pop("entries", None)
    changed["cwd"] = cwd or description.get("cwd") or "/"
    changed["python"] = commandline.find_executable(argv[0], environ, changed["cwd"])
    changed["given"] = _find_given(changed)
    return judge(changed)


def _find_given(description: Description) -> Description:
    """What its arguments say of it; nothing where a title stands over them."""
    argv = description["argv"] if description["intact"] else []
    cwd = description.get("cwd") or "/"
    return arguments.find_given(argv, cwd, description["pid"])._asdict()


def _make_output(path: str) -> Description:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o644)
    except OSError as error:
        return {"kind": "file", "path": path, "failure": error.strerror}
    try:
        stat = os.fstat(fd)
    finally:
        os.close(fd)
    output: Description = {"kind": _kind(stat, path), "path": path, "append": True}
    output.update(device=stat.st_dev, inode=stat.st_ino, mode=stat_module.S_IMODE(stat.st_mode))
    return output


def judge(description: Description) -> Description:
    """Says whether the process can be started again as it was, and if not, why not.

    One that somebody else runs is started by them, so that nothing here stands in its way; but
    which sockets and files are its own has to be seen all the same.
    """
    if description.get("way"):
        why = "" if description["readable"] else _tell_unreadable(description)
        description.update(needs_output=False, why=why, restorable=not why)
        return description
    why = _why_not(description)
    lost = [_lost_output(name, description.get(name, {})) for name in ("stdout", "stderr")]
    description["needs_output"] = not why and any(lost)
    description["why"] = why or next((text for text in lost if text), "")
    description["restorable"] = not description["why"]
    return description


def describe_output(pid: int, fd: int) -> Description:
    """What one of a process's descriptors leads to."""
    path = "/proc/%d/fd/%d" % (pid, fd)
    try:
        target = procfs.to_text(os.readlink(path.encode()))
        stat = os.stat(path)
    except FileNotFoundError:
        return {"kind": "closed"}
    except OSError:
        return {"kind": "unknown"}
    output: Description = {"kind": _kind(stat, target)}
    if output["kind"] in ("file", "tty", "null", "other"):
        output["path"] = target
    output.update(device=stat.st_dev, inode=stat.st_ino)
    if output["kind"] == "file":
        output["deleted"] = stat.st_nlink == 0 or _is_unnamed(target, stat)
        output["mode"] = stat_module.S_IMODE(stat.st_mode)
    flags = re.search(
        rb"flags:\s*(\d+)", procfs.read_bytes("/proc/%d/fdinfo/%d" % (pid, fd)) or b""
    )
    if flags:
        output["append"] = bool(int(flags.group(1), 8) & os.O_APPEND)
    return output


def _is_unnamed(target: str, stat: os.stat_result) -> bool:
    """Whether an open file lost the name it was opened by; a hard link may keep it all the same."""
    if not target.endswith(" (deleted)"):
        return False
    try:
        return not os.path.samestat(os.stat(procfs.to_bytes(target)), stat)
    except OSError:
        return True


def _kind(stat: os.stat_result, target: str) -> str:
    if stat_module.S_ISREG(stat.st_mode):
        return "file"
    if stat_module.S_ISFIFO(stat.st_mode):
        return "pipe"
    if stat_module.S_ISSOCK(stat.st_mode):
        return "socket"
    if stat_module.S_ISCHR(stat.st_mode):
        if stat.st_rdev == _NULL:
            return "null"
        return "tty" if target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")) else "other"
    return "other"


def _parse_argv(data: bytes) -> List[str]:
    if _is_title(data):
        return [procfs.to_text(data.rstrip(b"\0"))]
    return procfs.parse_strings(data)


def _is_title(data: bytes) -> bool:
    """Whether a process wrote a title over its arguments: one text, then NULs that fill the room.

    A title that fills it exactly looks like a single word; those of SGLang hold colons.
    """
    text = data.rstrip(b"\0")
    if not text or b"\0" in text:
        return False
    return len(data) - len(text) != 1 or b"::" in text or b": " in text


def _read_neighbours(pid: int, processes: Dict[int, procfs.Stat]) -> Description:
    """Who stands above and below a process."""
    package = below.find_package(pid)
    found = supervisor.find_supervisor(pid, processes)
    # Of an owner nobody can say that it is not started again.
    wrapper = None if found else owner.find_wrapper(pid, processes)
    family = below.find_family(pid, package, processes)
    return {
        "supervisor": found and found.name,
        "owned": found and found.why,
        "owner": found and {name: getattr(found, name) for name in _OWNER},
        "wrapper": wrapper and wrapper.name,
        "is_script": wrapper and wrapper.is_script,
        "strangers": below.find_strangers(pid, package, processes) or None,
        # Workers whose main process dies before it is stopped are known by this alone.
        "tree": [[s.pid, s.start_time] for s in family if s.alive],
    }


def _read_identity(pid: int) -> Description:
    status = procfs.read_status(pid)
    identity: Description = {}
    for name, field in (("uid", "Uid"), ("gid", "Gid")):
        if field in status:
            identity[name] = int(status[field].split()[1])
    if "uid" in identity:
        identity["user"] = procfs.user_name(identity["uid"])
    if "Groups" in status:
        identity["groups"] = sorted(int(text) for text in status["Groups"].split())
    if "Umask" in status:
        identity["umask"] = int(status["Umask"], 8)
    if "Mems_allowed_list" in status:
        identity["mems_allowed"] = status["Mems_allowed_list"]
    return identity


def _read_scheduling(pid: int) -> Description:
    found: Description = {}
    found["rlimits"] = limits.read_limits(pid)
    try:
        found["affinity"] = sorted(os.sched_getaffinity(pid))
        found["nice"] = os.getpriority(os.PRIO_PROCESS, pid)
    except OSError:
        pass
    score = procfs.read_bytes("/proc/%d/oom_score_adj" % pid)
    if score is not None:
        found["oom_score_adj"] = int(score)
    found["numa"] = mempolicy.read_policy(pid)
    found["scheduler"] = priority.read_scheduler(pid)
    found["disk"] = priority.read_disk(pid)
    return found


def _find_python(description: Description) -> Optional[str]:
    argv, cwd, exe = (description.get(name) for name in ("argv", "cwd", "exe"))
    exe = exe[: -len(" (deleted)")] if exe and exe.endswith(" (deleted)") else exe
    if not argv or not description["intact"]:
        return exe
    found = commandline.find_executable(argv[0], description.get("environ") or {}, cwd or "/")
    # `exec -a NAME` leaves a first word that is no file, or another one.
    if found and (exe is None or os.path.realpath(found) == exe):
        return found
    return exe


def _why_not(description: Description) -> str:
    """The first reason, other than its output, why it could not be started again as it was."""
    if description.get("pid") == 1:
        return "it is process 1 of its container, which ends with it"
    if not description["readable"]:
        return _tell_unreadable(description)
    if description.get("namespaces") and not description.get("owned"):
        told = namespaces.tell(description["namespaces"])
        return "its %s not the agent's, and could not be given back" % told
    if not description.get("argv") or not description.get("intact", True):
        return "it has overwritten its own command line with a title"
    if description.get("owned"):
        return str(description["owned"])
    if description.get("strangers"):
        return "it would take along %s" % " and ".join(description["strangers"])
    python = description.get("python")
    if not python or not os.path.exists(python):
        return "the program it runs, `%s`, is not there any more" % (python or "?")
    cwd = description.get("cwd")
    if not cwd or not os.path.isdir(cwd):
        return "its working directory, `%s`, is not there any more" % (cwd or "?")
    return ""


def _tell_unreadable(description: Description) -> str:
    return "it belongs to %s, whose processes we may not read" % description.get("user", "?")


def _lost_output(name: str, output: Description) -> str:
    kind = output.get("kind", "unknown")
    if "failure" in output:
        return "its %s cannot go to `%s`: %s" % (name, output["path"], output["failure"])
    if kind == "file" and output.get("deleted"):
        return "its %s goes to a file that was deleted" % name
    if kind in ("file", "null", "closed"):
        return ""
    named = {"tty": "terminal", "other": "device", "unknown": "place that we may not read"}
    return "its %s goes to a %s, which cannot be given back" % (name, named.get(kind, kind))
