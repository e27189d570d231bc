"""Who would start a server again behind our back, or end with it: told from cgroups and parents."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Dict, List, Optional, Sequence

from . import commandline, procfs

_RUNTIMES = re.compile(r"[/-](docker|libpod|cri-containerd|crio|lxc|nerdctl|kubepods)\b")
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
# Services that only hold people's sessions; what runs in them is nobody's unit.
_SESSION_HOSTS = re.compile(
    r"(sshd?(@.*)?|crond?|atd|user@\d+|.*getty.*|gdm|lightdm|sddm|dropbear|tmux.*|screen.*)\.service$"
)
_PROGRAMS = ("supervisord", "runsv", "s6-supervise", "circusd", "slurmstepd")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash")
# They hold sessions of people; what runs below them is nobody's child.
_HOLDERS = ("systemd", "init", "sshd", "tmux: server", "tmux: client", "screen", "login", "su")
_SCRIPT_LIMIT = 64 << 10
# With its condition: `until SERVER; do` starts it as often as a body would.
_LOOP = re.compile(r"\b(?:while|until)\b(.*?\bdo\b.*?)\bdone\b", re.DOTALL)


def read_cgroups(pid: int) -> List[str]:
    """The lines of `/proc/PID/cgroup`; empty where the process is gone."""
    data = procfs.read_bytes("/proc/%d/cgroup" % pid) or b""
    return procfs.to_text(data).splitlines()


def find_path(cgroups: List[str]) -> str:
    """The one cgroup worth showing: the unified one, else systemd's, else the first not `/`."""
    paths = {line.split(":", 2)[1] or "unified": line.split(":", 2)[2] for line in cgroups}
    for name in ("unified", "name=systemd"):
        if paths.get(name, "/") != "/":
            return paths[name]
    return next((path for path in paths.values() if path != "/"), "/")


def find_container(cgroups: List[str]) -> Optional[str]:
    """The container that these cgroups belong to, by its short id where the path holds one."""
    for line in cgroups:
        path = line.split(":", 2)[2]
        runtime = _RUNTIMES.search(path)
        if runtime:
            ids = _CONTAINER_ID.findall(path)
            return "container %s" % (ids[-1][:12] if ids else "of " + runtime.group(1))
    return None


def find_unit(cgroups: List[str]) -> Optional[str]:
    """The service unit in whose cgroup a process runs, unless it only hosts sessions."""
    for line in cgroups:
        parts = line.split(":", 2)[2].split("/")
        name = next((part for part in reversed(parts) if part.endswith(".service")), "")
        # A scope below user@1000.service is a terminal or a session, not a service.
        if name and not _SESSION_HOSTS.match(name) and not parts[-1].endswith(".scope"):
            return name
    return None


def find_supervisor(pid: int, processes: Dict[int, procfs.Stat]) -> Optional[str]:
    """A text such as `systemd unit x.service`, or `None` where nothing supervises the process."""
    cgroups = read_cgroups(pid)
    container = find_container(cgroups)
    if container and container != find_container(read_own()):
        return container
    ancestors = procfs.find_ancestors(pid, processes)
    below = [pid]
    for stat in _leave_out_ours(ancestors, processes):
        if stat.comm in _PROGRAMS:
            return "%s (pid %d)" % (stat.comm, stat.pid)
        if stat.comm in _SHELLS and _starts_again(stat.pid, below):
            return "a loop of %s" % name_process(stat.pid)
        below.append(stat.pid)
    if pid != 1 and processes[pid].sid == 1 and any(stat.pid == 1 for stat in ancestors):
        return "%s, the main process of its container, which ends with it," % name_process(1)
    unit = find_unit(cgroups)
    if not unit or unit == find_unit(read_own()):
        return None
    if _runs_it(unit, [pid] + [stat.pid for stat in ancestors]):
        return "systemd unit %s" % unit
    return None


def _leave_out_ours(
    ancestors: List[procfs.Stat], processes: Dict[int, procfs.Stat]
) -> List[procfs.Stat]:
    """The ancestors up to the first that is ours too; what is above it runs both of us.

    So a loop that runs a job with server and agent in it is none around the server, and a
    supervisord of which sshd and the server are two programs still is one.
    """
    ours = {os.getpid()} | {stat.pid for stat in procfs.find_ancestors(os.getpid(), processes)}
    first = next((at for at, stat in enumerate(ancestors) if stat.pid in ours), len(ancestors))
    return ancestors[: first + 1]


def find_wrapper(pid: int, processes: Dict[int, procfs.Stat]) -> Optional[str]:
    """A program that waits for this process and ends with it, in words; it is not started again.

    Shells in which somebody types, terminals and whoever took in an orphan do not count.
    """
    parent = processes.get(processes[pid].ppid) if pid in processes else None
    if parent is None or parent.pid in (1, os.getpid()) or parent.comm in _HOLDERS:
        return None
    argv = procfs.parse_strings(procfs.read_cmdline(parent.pid))
    if not argv:
        return None
    if parent.comm in _SHELLS:
        return None if _read_script(parent.pid) is None else name_process(parent.pid)
    if any("sgldbg" in word for word in argv):  # an agent, which has what it started as a child
        return None
    return name_process(parent.pid)


def name_process(pid: int) -> str:
    """A process in words that hold none of its secrets: `bash run.sh (pid 12)`."""
    argv = procfs.parse_strings(procfs.read_cmdline(pid).rstrip(b"\0"))
    name = commandline.name_program(argv) if argv else "?"
    script = _find_script(argv)
    if script and os.path.basename(argv[0]).lstrip("-") in _SHELLS:
        name = "%s %s" % (name, "-c" if script == "-c" else script)
    return "%s (pid %d)" % (name, pid)


def _find_script(argv: Sequence[str]) -> Optional[str]:
    """The script of a shell's command line, `-c` for a text; `None` where somebody types."""
    for word in argv[1:]:
        if word == "-c" or (word[:1] == "-" and word[1:2] != "-" and word.endswith("c")):
            return "-c"
        if not word.startswith(("-", "+")):
            return word
    return None


def _read_script(pid: int) -> Optional[str]:
    """What a shell runs, as far as it can be read; `None` where somebody types in it."""
    argv = procfs.parse_strings(procfs.read_cmdline(pid))
    script = _find_script(argv)
    if script is None:
        return None
    if script == "-c":
        return next((word for word in argv[1:] if not word.startswith("-")), "")
    path = os.path.join(procfs.read_link("/proc/%d/cwd" % pid) or "/", script)
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            return file.read(_SCRIPT_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""


def _starts_again(shell: int, below: Sequence[int]) -> bool:
    """Whether a shell's script has a loop around the server or what leads to it."""
    loops = _LOOP.findall(_read_script(shell) or "")
    names = {'"$@"', "$@", "$*"}
    for pid in below if loops else ():
        argv = procfs.parse_strings(procfs.read_cmdline(pid))
        program = commandline.parse_program(argv)
        if program is not None and program.name:
            names |= {program.name, os.path.basename(program.name) + " serve"}
    return any(name in body for body in loops for name in names)


def read_own() -> List[str]:
    """Our own cgroups: a container that holds us as well is the machine we work on."""
    data = procfs.read_bytes("/proc/self/cgroup") or b""
    return procfs.to_text(data).splitlines()


def _runs_it(unit: str, family: List[int]) -> bool:
    """Whether the unit's main process is the server or above it; true where nobody can tell."""
    command = ["systemctl", "show", "--property=MainPID", unit]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    text = done.stdout.decode("ascii", "replace").strip().partition("=")[2]
    main = int(text) if text.isdigit() else 0
    return done.returncode != 0 or main == 0 or main in family
