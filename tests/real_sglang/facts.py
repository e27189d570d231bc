"""How one process runs, read from /proc by the tests themselves; all of it must be given back."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

# What the product looks at is not asked: what it overlooks must show here.
_STATUS = (
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "NoNewPrivs",
    "SigIgn",
    "Cpus_allowed_list",
    "Mems_allowed_list",
)


@dataclass(frozen=True)
class Facts:
    """What one main process looks like from outside."""

    argv: tuple[str, ...]
    environ: dict[str, str]
    cwd: str
    exe: str
    status: dict[str, str]
    limits: str
    affinity: frozenset[int]
    numa: str
    nice: int
    oom_score_adj: str
    cgroups: str
    streams: tuple[str, str, str]


def read_facts(pid: int) -> Facts:
    """The facts of a process that runs now."""
    proc = Path(f"/proc/{pid}")
    lines = (proc / "status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    stdin, stdout, stderr = (os.readlink(proc / "fd" / str(number)) for number in range(3))
    return Facts(
        argv=read_words(pid, "cmdline"),
        environ=dict(word.split("=", 1) for word in read_words(pid, "environ")),
        cwd=os.readlink(proc / "cwd"),
        exe=os.readlink(proc / "exe"),
        status={key: status[key] for key in _STATUS},
        limits=(proc / "limits").read_text(),
        affinity=frozenset(os.sched_getaffinity(pid)),
        numa=_read_numa_policy(proc),
        nice=os.getpriority(os.PRIO_PROCESS, pid),
        oom_score_adj=(proc / "oom_score_adj").read_text().strip(),
        cgroups=(proc / "cgroup").read_text(),
        streams=(stdin, stdout, stderr),
    )


def read_words(pid: int, name: str) -> tuple[str, ...]:
    """The NUL-separated words of a file in /proc/PID; none where the process is gone."""
    try:
        data = Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return ()
    return tuple(word.decode(errors="surrogateescape") for word in data.split(b"\0")[:-1])


def read_start_time(pid: int) -> int | None:
    """Clock ticks since boot, which tell a process from a later one of its number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _read_numa_policy(proc: Path) -> str:
    """The policy of its stack, which is the process's own; empty where the kernel knows none."""
    try:
        lines = (proc / "numa_maps").read_text().splitlines()
    except FileNotFoundError:
        return ""
    return next(line.split()[1] for line in lines if " stack" in line)
