"""Who waits for a server and would start it again, told from those who only wait."""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Optional, Sequence

from .. import below, commandline, procfs
from . import programs, script, script_source

Processes = Dict[int, procfs.Stat]

_SCRIPT_BYTES = 64 << 10


class Owner(NamedTuple):
    """`name` is a process or a unit in words, `why` what stands in the way of adopting the server.

    `kind` is `supervisor` (`program` says which), `loop`, `unit` (of systemd: `unit`, and
    `manager`, the user whose own manager runs it where that is not the one that we ask),
    `container`, `init` (the main process of one), or `unsure` for what may be a mere wrapper.
    """

    kind: str
    name: str
    why: str
    program: Optional[str] = None
    unit: Optional[str] = None
    manager: Optional[str] = None


class Wrapper(NamedTuple):
    """A program that waits for a server, in words, and whether it is a script of a shell."""

    name: str
    is_script: bool


class Above(NamedTuple):
    """The owner, if any, and who waits for the server up to it or to whom nobody waits for."""

    owner: Optional[Owner]
    chain: List[int]


def find(pid: int, processes: Processes) -> Above:
    """Look at the parents of a process, one after the other, for its owner.

    Whoever runs us as well runs the job that both belong to: of those only one that is known to
    start it again counts, and nobody above the first of them.
    """
    package = below.find_package(pid)
    ours = {os.getpid()} | {stat.pid for stat in procfs.find_ancestors(os.getpid(), processes)}
    chain: List[int] = []
    child = processes[pid]
    for parent in procfs.find_ancestors(pid, processes):
        chain.append(parent.pid)
        owner = _judge(parent, child, processes, package)
        if isinstance(owner, Owner):
            if owner.kind == "unsure" and parent.pid in ours:
                owner = None
            return Above(owner, chain)
        if owner == _OVER or parent.pid in ours:
            break
        # A copy of the shell above it has the same text; what counts is what that text started.
        if not _is_copy(parent, processes.get(parent.ppid)):
            child = parent
    return Above(None, chain)


def find_wrapper(pid: int, processes: Processes) -> Optional[Wrapper]:
    """A program that waits for this process and ends with it; it is not started again.

    Shells in which somebody types, terminals and whoever took in an orphan do not count.
    """
    parent = processes.get(processes[pid].ppid) if pid in processes else None
    if parent is None or parent.pid in (1, os.getpid()) or _took_in(parent, processes[pid]):
        return None
    program = programs.read(parent)
    package = below.find_package(pid)
    if not program.argv or program.is_holder or "su" in program.names:
        return None
    if package is not None and below.is_main(parent.pid, package):
        return None
    if _is_typed_in(program, parent.pid):
        return None
    return Wrapper(name_process(parent.pid), program.is_shell)


def name_process(pid: int) -> str:
    """A process in words that hold none of its secrets: `bash run.sh (pid 12)`."""
    argv = procfs.parse_strings(procfs.read_cmdline(pid).rstrip(b"\0"))
    name = commandline.name_program(argv) if argv else "?"
    if argv and os.path.basename(argv[0]).lstrip("-") in programs.SHELLS:
        source = script_source.find(pid, argv)
        name = " ".join(filter(None, (os.path.basename(argv[0]), source.name)))
    return "%s (pid %d)" % (name, pid)


# What is said of a parent that is no owner: it only waits, or nobody above it waits.
_WAITS = "waits"
_OVER = "over"


def _judge(
    parent: procfs.Stat, child: procfs.Stat, processes: Processes, package: Optional[str]
) -> object:
    """An `Owner`, `_WAITS` or `_OVER`."""
    program = programs.read(parent)
    if parent.pid == os.getpid() or not program.argv:
        return _OVER
    known = program.find_supervisor()
    if known is not None and not (parent.pid == 1 and _may_be_taken_in(known, child)):
        name = "%s (pid %d)" % (known, parent.pid)
        return Owner("supervisor", name, "%s owns it" % name, program=known)
    if program.is_holder or _took_in(parent, child):
        return _OVER
    if package is not None and below.is_main(parent.pid, package):
        return _OVER
    is_alone = _is_alone(parent, child, processes)
    argv = procfs.parse_strings(procfs.read_cmdline(child.pid))
    if parent.pid == 1:
        return _judge_first(program, child, argv, is_alone)
    if program.names & programs.INITS and program.argv[-len(argv) :] != argv:
        return _OVER  # as a reaper, of others than the one that it was given
    if program.is_shell:
        return _judge_shell(program, parent, argv, processes, is_alone)
    if program.is_other_shell and _is_typed_in(program, parent.pid):
        return _OVER
    if programs.ends_with_it(program, is_alone):
        return _WAITS
    return _unsure(parent.pid)


def _judge_shell(
    program: programs.Program,
    shell: procfs.Stat,
    argv: Sequence[str],
    processes: Processes,
    is_alone: bool,
) -> object:
    is_copy = _is_copy(shell, processes.get(shell.ppid))
    source = script_source.find(shell.pid, program.argv)
    if source.kind == "typed":
        # A part of what somebody typed, put into the background: nobody can read what it is.
        return _unsure(shell.pid) if is_copy else _OVER
    if is_copy:
        return _WAITS  # its parent has the same text, and all that it has
    found = "unsure" if source.text is None else script.judge(source.text, argv, is_alone)
    if found == "loop":
        return _loop(shell.pid)
    return _WAITS if found is None else _unsure(shell.pid)


def _judge_first(
    program: programs.Program, child: procfs.Stat, argv: Sequence[str], is_alone: bool
) -> object:
    """Of process 1: it takes in orphans, too, so that it must name what it has started."""
    if program.is_shell:
        text = script_source.find(1, program.argv).text or ""
        is_its = child.sid == 1 or _mentions(text, argv)
        if is_its and script.judge(text, argv, is_alone) == "loop":
            return _loop(1)
        return _OVER
    if child.sid != child.pid:
        return _OVER  # what runs in its own process session ends with it: see supervisor.py
    if program.names & programs.INITS and program.argv[-len(argv) :] == list(argv):
        name = container_main()
        return Owner("init", name, "%s owns it" % name)
    written = _read_program(program.argv)
    return _unsure(1) if written and _mentions(written, argv) else _OVER


def container_main() -> str:
    """Process 1 where a server ends with it, in words."""
    return "%s, the main process of its container, which ends with it," % name_process(1)


def _loop(pid: int) -> Owner:
    name = "a loop of %s" % name_process(pid)
    return Owner("loop", name, "%s owns it" % name)


def _unsure(pid: int) -> Owner:
    name = name_process(pid)
    return Owner("unsure", name, "%s waits for it and may start it again" % name)


def _is_typed_in(program: programs.Program, pid: int) -> bool:
    if not program.is_shell and not program.is_other_shell:
        return False
    return script_source.find(pid, program.argv).kind == "typed"


def _is_copy(child: procfs.Stat, parent: Optional[procfs.Stat]) -> bool:
    """Whether a process was forked from its parent and runs no program of its own."""
    if parent is None or not child.is_copy:
        return False
    return procfs.read_cmdline(child.pid) == procfs.read_cmdline(parent.pid)


def _is_alone(parent: procfs.Stat, child: procfs.Stat, processes: Processes) -> bool:
    """Whether a process, and copies of it on the way, have no children but the one."""
    pids = {parent.pid}
    stat = child
    while stat.ppid != parent.pid and stat.ppid in processes:
        stat = processes[stat.ppid]
        pids.add(stat.pid)
    others = (s for s in processes.values() if s.ppid in pids and s.pid not in pids)
    return not any(s.alive and s.pid != child.pid for s in others)


def _took_in(parent: procfs.Stat, child: procfs.Stat) -> bool:
    """Whether somebody in between, who is gone, made the process session of this child.

    The parent then took in an orphan (process 1, a subreaper) and never started it.
    """
    return child.sid not in (child.pid, parent.sid)


def _may_be_taken_in(known: str, child: procfs.Stat) -> bool:
    """supervisord leaves its programs in its own process session; others make one for each."""
    return child.sid != 1 and (known == "supervisord" or child.sid != child.pid)


def _read_program(argv: Sequence[str]) -> Optional[str]:
    """The text of the script of a Python that is process 1, if it has one."""
    program = commandline.parse_program(argv) if commandline.is_interpreter(argv[0]) else None
    if program is None or program.kind == "module":
        return None
    if program.kind == "code":
        return program.name
    path = os.path.join(procfs.read_link("/proc/1/cwd") or "/", program.name)
    data = procfs.read_bytes(path) if os.path.isfile(path) else None
    return None if data is None else procfs.to_text(data[:_SCRIPT_BYTES])


def _mentions(text: str, argv: Sequence[str]) -> bool:
    """Whether a text names what this command line runs."""
    if not argv:
        return False
    program = commandline.parse_program(argv) if commandline.is_interpreter(argv[0]) else None
    name = os.path.basename(argv[0]) if program is None else os.path.basename(program.name)
    return name in text
