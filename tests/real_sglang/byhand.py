"""A server that somebody started by hand, on one node or two, and how it runs right now."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.real_sglang import server
from tests.real_sglang.server import Launch, Running

# It begins unlike the warm-up's "The capital city of France is", whose prefix would be cached: then
# less is computed than was asked.
PROMPT = "Once upon a midnight dreary"
# Bytes are tokens here: a prefill of so many is this prompt's, and nobody else's. The warm-up's
# prompt has 29, a health poll's 1.
PROMPT_TOKENS = len(PROMPT)
# A lease of two minutes, a stop, and some air.
GUARD_TIMEOUT_S = 200.0


@dataclass(frozen=True)
class Facts:
    """What one main process looks like from outside; all of it must be given back."""

    argv: tuple[str, ...]
    environ: dict[str, str]
    cwd: str
    status: dict[str, str]
    limits: str
    affinity: frozenset[int]
    nice: int
    stdout: str
    stderr: str


class ByHand:
    """The nodes of one server. The processes change when somebody restarts them, this does not."""

    def __init__(
        self,
        launches: Sequence[Launch],
        folder: Path,
        installs: Sequence[Path],
        states: Sequence[Path] = (),
    ) -> None:
        """`installs` are the folders from which the nodes import SGLang.

        `states` are where the hosts keep their sessions: the guard of a session that failed starts
        the server again, so this is not over before the guard is.
        """
        self.launches = tuple(launches)
        self.states = tuple(states)
        self.folder = folder
        self.installs = tuple(installs)
        self.started: tuple[Running, ...] = ()
        self._around = ExitStack()

    def __enter__(self) -> ByHand:
        self._around.enter_context(server.shared_memory_cleaned())
        self._around.callback(self.stop)
        try:
            self.start()
        except BaseException:
            self._around.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._around.close()

    @property
    def url(self) -> str:
        """Where node 0 answers."""
        return self.started[0].url

    def start(self) -> None:
        """Start all nodes and wait until each is ready."""
        for rank, launch in enumerate(self.launches):
            self.started += (server.start(launch, self.folder / f"node{rank}"),)
        for running in self.started:
            server.wait_ready(running)

    def mains(self) -> list[int]:
        """The main process of each node, whoever started it; exactly one each."""
        found = []
        for rank, launch in enumerate(self.launches):
            pids = [pid for pid in _pids() if _words(pid, "cmdline") == launch.argv]
            assert len(pids) == 1, f"node {rank} should have one main process, has {pids}"
            found.append(pids[0])
        return found

    def facts(self) -> list[Facts]:
        """How each main process runs."""
        return [_facts(pid) for pid in self.mains()]

    def tokens(self) -> list[int]:
        """What it answers to the prompt."""
        return server.generate(self.url, PROMPT)

    def stop(self) -> None:
        """End every node, whichever of its lives it is in; a debug life has other arguments."""
        if not self.started:
            return
        server.wait_for(lambda: not self._guards(), GUARD_TIMEOUT_S, lambda: f"{self._guards()}")
        logs = self.started[0].stdout, self.started[0].stderr
        alive = [
            Running(pid, _port(launch.argv), *logs)
            for launch in self.launches
            for pid in _pids()
            if _is_a_life_of(launch, _words(pid, "cmdline"))
        ]
        server.stop(alive)

    def _guards(self) -> list[int]:
        """Guards and agents at work, which name their session's directory in their arguments."""
        return [
            pid
            for pid in _pids()
            for word in _words(pid, "cmdline")
            if any(word.startswith(f"{state}/sessions/") for state in self.states)
        ]


def _port(argv: Sequence[str]) -> int:
    return int(argv[argv.index("--port") + 1])


def _is_a_life_of(launch: Launch, argv: Sequence[str]) -> bool:
    """The same interpreter runs the same module on the same port, which no one else has."""
    same_program = tuple(argv[:3]) == launch.argv[:3]
    return same_program and "--port" in argv and _port(argv) == _port(launch.argv)


def _pids() -> list[int]:
    mine = os.getpid()
    every = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in every if pid != mine and server.is_alive(pid)]


def _words(pid: int, name: str) -> tuple[str, ...]:
    """The NUL-separated words of a file in /proc/PID."""
    try:
        data = Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return ()
    return tuple(word.decode(errors="surrogateescape") for word in data.split(b"\0")[:-1])


def _facts(pid: int) -> Facts:
    environ = dict(word.split("=", 1) for word in _words(pid, "environ"))
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    kept = ("Umask", "Uid", "Gid", "Groups", "NoNewPrivs", "Cpus_allowed_list")
    return Facts(
        argv=_words(pid, "cmdline"),
        environ=environ,
        cwd=os.readlink(f"/proc/{pid}/cwd"),
        status={key: status[key] for key in kept},
        limits=Path(f"/proc/{pid}/limits").read_text(),
        affinity=frozenset(os.sched_getaffinity(pid)),
        nice=os.getpriority(os.PRIO_PROCESS, pid),
        stdout=os.readlink(f"/proc/{pid}/fd/1"),
        stderr=os.readlink(f"/proc/{pid}/fd/2"),
    )
