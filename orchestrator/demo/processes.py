"""The demonstration's processes on this machine, known by the home directory they run in."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

LEAVE_S = 5.0  # a miniature drains in a fraction of a second
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """A process as the kernel shows it; `start_time` tells it from a later one of its number."""

    pid: int
    ppid: int
    start_time: int
    argv: tuple[str, ...]
    environ: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What must be as before of a server's main process; the order of variables counts."""

    argv: tuple[str, ...]
    environ: tuple[str, ...]
    cwd: str


def read_processes(homes: Collection[Path]) -> list[Process]:
    """All live processes with one of these directories as HOME, and all their descendants.

    Descendants, since a worker's process title has taken the place of its environment.
    """
    every = {process.pid: process for process in _read_all()}
    wanted = {f"HOME={home}" for home in homes}
    chosen = {pid for pid, p in every.items() if wanted.intersection(p.environ)}
    while True:
        more = {pid for pid, p in every.items() if p.ppid in chosen} - chosen
        if not more:
            return [every[pid] for pid in sorted(chosen)]
        chosen |= more


def find_server(home: Path, module: str) -> ServerFacts | None:
    """The process that runs `python -m <module>` in this home, as it was started."""
    for process in read_processes([home]):
        if process.argv[1:3] == ("-m", module):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended just now
                cwd = str(Path(f"/proc/{process.pid}/cwd").readlink())
                return ServerFacts(process.argv, process.environ, cwd)
    return None


def end_all(homes: Collection[Path]) -> None:
    """End everything that runs in these homes: asked first, then made to."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + LEAVE_S
        told: set[tuple[int, int]] = set()
        while left := read_processes(homes):
            # Looked at again and again: a process that is asked to end may first start another.
            for process in left:
                name = (process.pid, process.start_time)
                if name not in told and _may_ask(process, left, sign):
                    told.add(name)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, sign)
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)


def _may_ask(process: Process, left: list[Process], sign: signal.Signals) -> bool:
    """A worker is its main process's to end; both at once would look like a crash to it."""
    return sign == signal.SIGKILL or process.ppid not in {p.pid for p in left}


def read_start_time(pid: int) -> int | None:
    """When a live process began, in the kernel's own count; tells it from a later namesake."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _read_all() -> Iterator[Process]:
    """Our own user's live processes; zombies and what we may not look into are left out."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] in "ZX":
                continue
            yield Process(
                int(entry.name),
                int(fields[1]),
                int(fields[19]),
                _strings(entry / "cmdline"),
                _strings(entry / "environ"),
            )


def _strings(path: Path) -> tuple[str, ...]:
    data = path.read_bytes().decode("utf-8", "surrogateescape")
    return tuple(data.rstrip("\0").split("\0"))
