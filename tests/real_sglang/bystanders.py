"""Processes beside the server that a session must not touch, and what shows that it did not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.real_sglang import server
from tests.real_sglang.byhand import PROMPT
from tests.real_sglang.facts import read_start_time
from tests.real_sglang.server import Launch, Running

OUTLIVING = Path(__file__).resolve().parent / "outliving"


@dataclass(frozen=True)
class Seen:
    """Who they are, and the shared memory that they hold; a name that is gone would be missing."""

    started: dict[int, int | None]
    shared_memory: frozenset[str]
    tokens: tuple[int, ...] = ()


def look(pids: Sequence[int], url: str | None = None) -> Seen:
    """The processes as they are now, with an answer where they are a server."""
    return Seen(
        {pid: read_start_time(pid) for pid in pids},
        frozenset(path for pid in pids for path in _shared_memory(pid) if Path(path).exists()),
        tuple(server.generate(url, PROMPT)) if url else (),
    )


def _shared_memory(pid: int) -> list[str]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []
    return [line.split(None, 5)[5] for line in lines if "/dev/shm/" in line]


@contextmanager
def foreign_server(launch: Launch, folder: Path) -> Iterator[Running]:
    """Somebody else's server; it starts while its user goes on, who waits before asking it."""
    with server.shared_memory_cleaned():
        running = server.start(launch, folder)
        try:
            yield running
        finally:
            server.stop([running])


def may_outlive(launch: Launch, folder: Path) -> dict[str, str]:
    """The environment in which processes of the server can be made to outlive their parent."""
    folder.mkdir(parents=True, exist_ok=True)
    path = f"{OUTLIVING}:{launch.environ['PYTHONPATH']}"
    return {**launch.environ, "PYTHONPATH": path, "OUTLIVING": str(folder)}


def orphan_schedulers(main: int, folder: Path) -> list[int]:
    """Kill a main process in such a way that its schedulers stay; whoever of its tree is left.

    That is the schedulers and, for as long as they live, multiprocessing's own resource tracker.
    """
    below = server.tree(main)
    schedulers = [pid for pid in below if is_scheduler(pid)]
    assert schedulers, f"no scheduler among {below}"
    for pid in schedulers:
        os.kill(pid, signal.SIGUSR2)
    done = [folder / str(pid) for pid in schedulers]
    server.wait_for(lambda: all(p.exists() for p in done), 30, lambda: f"not all of {done}")
    ends = [main, *(pid for pid in below if _has_title(pid, b"detokenizer"))]
    os.kill(main, signal.SIGKILL)
    server.wait_for(lambda: not any(map(server.is_alive, ends)), 30, lambda: f"one of {ends}")
    assert all(map(server.is_alive, schedulers)), "they were to outlive it"
    return [pid for pid in below if server.is_alive(pid)]


def is_scheduler(pid: int) -> bool:
    """By the title that SGLang's workers write over their command line."""
    return _has_title(pid, b"scheduler")


def _has_title(pid: int, word: bytes) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sglang::" + word)
    except OSError:
        return False
