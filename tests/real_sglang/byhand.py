"""A server that somebody started by hand, on one node or two, and how it runs right now."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.real_sglang import server
from tests.real_sglang.facts import Facts, read_facts, read_start_time, read_words
from tests.real_sglang.server import Launch, Running

# It begins unlike the warm-up's "The capital city of France is", whose prefix would be cached: then
# less is computed than was asked.
PROMPT = "Once upon a midnight dreary"
# Bytes are tokens here: a prefill of so many is this prompt's, and nobody else's. The warm-up's
# prompt has 29, a health poll's 1.
PROMPT_TOKENS = len(PROMPT)
# A lease of two minutes, a stop, and some air.
GUARD_TIMEOUT_S = 200.0


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
        self.started = ()
        for rank, launch in enumerate(self.launches):
            self.started += (server.start(launch, self.folder / f"node{rank}"),)
        for running in self.started:
            server.wait_ready(running)

    def mains(self) -> list[int]:
        """The main process of each node, whoever started it; exactly one each."""
        found = []
        for rank, launch in enumerate(self.launches):
            pids = [pid for pid in _pids() if read_words(pid, "cmdline") == launch.argv]
            assert len(pids) == 1, f"node {rank} should have one main process, has {pids}"
            found.append(pids[0])
        return found

    def facts(self) -> list[Facts]:
        """How each main process runs."""
        return [read_facts(pid) for pid in self.mains()]

    def life(self, rank: int = 0) -> dict[int, int]:
        """Every process of the node, whichever life this is, with its start time."""
        (main,) = self._alive(self.launches[rank])
        started = {pid: read_start_time(pid) for pid in server.tree(main)}
        return {pid: time for pid, time in started.items() if time is not None}

    def logs(self) -> list[Path]:
        """The files that the nodes write to: stdout and stderr of each."""
        return [path for r in self.started for path in (r.stdout, r.stderr)]

    def tokens(self) -> list[int]:
        """What it answers to the prompt."""
        return server.generate(self.url, PROMPT)

    def stop(self) -> None:
        """End every node, whichever of its lives it is in; a debug life has other arguments."""
        if not self.started:
            return
        server.wait_for(lambda: not self._guards(), GUARD_TIMEOUT_S, lambda: f"{self._guards()}")
        logs = self.started[0].stdout, self.started[0].stderr
        server.stop(
            [
                Running(pid, _port(launch.argv), *logs)
                for launch in self.launches
                for pid in self._alive(launch)
            ]
        )

    def _alive(self, launch: Launch) -> list[int]:
        """The main process of a node in any of its lives, where there is one."""
        return [pid for pid in _pids() if _is_a_life_of(launch, read_words(pid, "cmdline"))]

    def _guards(self) -> list[int]:
        """Guards and agents at work, which name their session's directory in their arguments."""
        return [
            pid
            for pid in _pids()
            for word in read_words(pid, "cmdline")
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
