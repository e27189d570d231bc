"""What stands below the main process of a server: its own, other servers, and strangers."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Set, Tuple

from . import arguments, commandline, procfs
from .above import programs

Processes = Dict[int, procfs.Stat]

# 0.5.2 writes a title over the arguments of its main process; it is found all the same, so that
# the user learns why it cannot be adopted.
_MAIN_TITLE = "::http_server"
_DEFAULT_PORT = "30000"
# What starts workers by the text of a program, or as a module: the second is that of dill.
_SPAWNERS = ("multiprocessing", "multiprocess", "joblib", "torch")
_IMPORTED = re.compile(r"\s*(?:from|import) ([\w.]+)")


def find_package(pid: int) -> Optional[str]:
    """The package of whose server this process is the main process, as its argv tells."""
    data = procfs.read_cmdline(pid)
    title = procfs.to_text(data.partition(b"\0")[0])
    if _MAIN_TITLE in title:
        return title.partition("::")[0]
    if b"serve" not in data:
        return None  # spares most processes the reads below
    executable = procfs.read_link("/proc/%d/exe" % pid) or ""
    return commandline.find_package(procfs.parse_strings(data), executable, _read_cwd(pid))


def is_main(pid: int, package: str) -> bool:
    """Whether this process is the main process of a server of `package`."""
    return package.encode() in procfs.read_cmdline(pid) and find_package(pid) == package


def is_part(pid: int, above: int, processes: Processes) -> bool:
    """Whether one main process is no server by itself but belongs to another one above it.

    It is where it was forked and never ran a program of its own, has the same command line, or is
    started by the other one to do its work: on the same port, as `sglang serve` may do.
    """
    argv, other = (procfs.parse_strings(procfs.read_cmdline(number)) for number in (pid, above))
    if processes[pid].is_copy or argv == other:
        return True
    if any(len(words) == 1 or not words[1] for words in (argv, other)):  # a title, and NULs
        ports = set(procfs.find_ports(pid))
        return not ports - set(procfs.find_ports(above))
    return _have_one_place(
        arguments.find_given(argv, _read_cwd(pid), pid).values,
        arguments.find_given(other, _read_cwd(above), above).values,
    )


def _have_one_place(given: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two servers with these options could not run beside each other."""
    if given.get("port", _DEFAULT_PORT) != other.get("port", _DEFAULT_PORT):
        return False
    both = [name for name in ("host", "node_rank") if name in given and name in other]
    return all(given[name] == other[name] for name in both)


def _read_cwd(pid: int) -> str:
    return procfs.read_link("/proc/%d/cwd" % pid) or "/"


def find_heads(package: str, processes: Processes) -> List[int]:
    """The main processes of all servers of `package`, each server once, in order of their pids."""
    mains = {pid for pid, stat in processes.items() if stat.alive and is_main(pid, package)}
    return [pid for pid in sorted(mains) if not _is_inner(pid, mains, processes)]


def _is_inner(pid: int, mains: Set[int], processes: Processes) -> bool:
    ancestors = procfs.find_ancestors(pid, processes)
    return any(s.pid in mains and is_part(pid, s.pid, processes) for s in ancestors)


def find_apart(root: int, package: Optional[str], processes: Processes) -> List[int]:
    """The main processes below `root` that are servers by themselves."""
    if package is None or root not in processes:
        return []
    tree = {stat.pid: stat for stat in procfs.find_tree(root, processes)}
    mains = {pid for pid, stat in tree.items() if stat.alive and is_main(pid, package)}
    return sorted(p for p in mains - {root} if not _is_inner(p, mains | {root}, processes))


def find_own(root: int, package: Optional[str], processes: Processes) -> List[procfs.Stat]:
    """The tree of a main process without those of other servers below it."""
    apart = find_apart(root, package, processes)
    others = {stat.pid for pid in apart for stat in procfs.find_tree(pid, processes)}
    return [stat for stat in procfs.find_tree(root, processes) if stat.pid not in others]


def find_family(root: int, package: Optional[str], processes: Processes) -> List[procfs.Stat]:
    """The own tree of `root`, and its workers in a process group or session that it leads.

    That finds those that gave up their parent. Whoever else is in that group (the shell's job was
    `SERVER | tee`, a script put another server or program beside it) is left out, with all below.
    """
    own = find_own(root, package, processes)
    if root not in processes:
        return own
    seen = {stat.pid for stat in procfs.find_tree(root, processes)}
    began = processes[root].start_time
    led = {
        s.pid: s
        for s in processes.values()
        if root in (s.pgid, s.sid) and s.start_time >= began and s.pid not in seen
    }
    heads = [s for s in led.values() if s.ppid not in led and _has_left(s, root, package)]
    return own + [s for head in heads for s in procfs.find_tree(head.pid, led)]


def _has_left(stat: procfs.Stat, root: int, package: Optional[str]) -> bool:
    """Whether a process whose parent is gone can only have been a worker of `root`."""
    if package is not None and is_main(stat.pid, package):
        return False
    data = procfs.read_cmdline(stat.pid)
    if stat.is_copy:
        return data == procfs.read_cmdline(root) or _has_title(data, package)
    return _has_title(data, package) or _is_spawned(procfs.parse_strings(data), package)


def _has_title(data: bytes, package: Optional[str]) -> bool:
    title = procfs.to_text(data.partition(b"\0")[0])
    return title.startswith(package + "::") if package is not None else "::" in title


def _is_spawned(argv: List[str], package: Optional[str]) -> bool:
    """Whether it runs what multiprocessing starts for a server, or a module of the package."""
    kind, name = _read_program(argv) if argv else ("", "")
    if kind == "code":
        found = _IMPORTED.match(name)
        name = found.group(1) if found else ""
    return kind in ("code", "module") and name.split(".")[0] in (package, *_SPAWNERS)


def find_strangers(root: int, package: Optional[str], processes: Processes) -> List[str]:
    """In words, whom the end of this server would take along, though they are not its own.

    `B & exec A` in a script makes B a child of A, and SGLang ends all that is below it. What
    began after the first of its workers is its own doing: compilers, profilers.
    """
    if package is None:
        return []
    apart = find_apart(root, package, processes)
    found = ["another server, %s" % _name(pid) for pid in apart]
    children = [s for s in processes.values() if s.ppid == root and s.alive and s.pid not in apart]
    own = {stat.pid for stat in children if _is_workers(stat, package)}
    first = min((stat.start_time for stat in children if stat.pid in own), default=None)
    for stat in sorted(children):
        if stat.pid not in own and (first is None or stat.start_time <= first):
            found.append(_name(stat.pid))
    return found


def _name(pid: int) -> str:
    return "%s (pid %d)" % (procfs.read_title(pid), pid)


def _is_workers(stat: procfs.Stat, package: Optional[str]) -> bool:
    """Whether a process looks like one that a server starts, by what it runs.

    Copies and what multiprocessing starts, titled or not yet, and programs of installed packages.
    A copy of a shell was there before the server: `while ...; done & exec SERVER`.
    """
    argv = procfs.parse_strings(procfs.read_cmdline(stat.pid).rstrip(b"\0"))
    if not argv or "::" in argv[0]:
        return True
    if stat.is_copy:
        return not programs.is_shell(argv)
    _, name = _read_program(argv)
    if _is_spawned(argv, package):
        return True
    executable = procfs.read_link("/proc/%d/exe" % stat.pid) or ""
    return any("-packages/" in word for word in (executable, argv[0], name))


def _read_program(argv: List[str]) -> Tuple[str, str]:
    program = commandline.parse_program(argv) if commandline.is_interpreter(argv[0]) else None
    return ("", "") if program is None else (program.kind, program.name)
