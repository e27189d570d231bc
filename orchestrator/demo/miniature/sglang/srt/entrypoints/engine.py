"""The workers of one node as their main process sees them: started, asked, ended."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import signal
import threading
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from ..distributed.parallel_state import listen
from ..managers.scheduler import run_scheduler_process
from ..server_args import ServerArgs

logger = logging.getLogger(__name__)

# The kernel may hand a signal to any thread, but only the main one runs its handler, and a wait
# without an end is not interrupted for it.
TICK_S = 0.1
EXIT_TIMEOUT_S = 2.0  # for workers that were asked to leave; they need milliseconds


class Engine:
    """The schedulers of this node and the requests that are under way."""

    def __init__(self, args: ServerArgs) -> None:
        """Start the schedulers and wait until those of all nodes have met.

        `OSError` where the meeting place cannot be had, `EOFError` when a scheduler dies.
        """
        self.processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        self._answers: dict[int, Any] = {}
        self._answered = threading.Condition()
        self._keys = itertools.count()
        self._ending = False
        self._start(args)
        for pipe in self._pipes:
            pipe.recv()
        if args.node_rank == 0:
            threading.Thread(target=self._collect, daemon=True).start()

    def _start(self, args: ServerArgs) -> None:
        context = multiprocessing.get_context("spawn")
        listener = None
        if args.node_rank == 0:
            listener = listen(args.dist_address())
            host, port = listener.getsockname()[:2]
            args = replace(args, dist_init_addr=f"{host}:{port}")
        for rank in args.local_ranks:
            ours, theirs = context.Pipe()
            # Only rank 0 gets the listener: its life decides whether the others can meet.
            own = listener if rank == 0 else None
            process = context.Process(
                target=run_scheduler_process, args=(args, rank, theirs, own), daemon=True
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self._pipes.append(ours)
        if listener is not None:
            listener.close()

    def _collect(self) -> None:
        """Hand out answers; end the server when one of its processes is gone."""
        answers, sentinels = self._pipes[0], [p.sentinel for p in self.processes]
        while True:
            ready = wait([answers, *sentinels])
            if answers not in ready:
                break
            try:
                answer = answers.recv()
            except (EOFError, OSError):
                break
            with self._answered:
                self._answers[answer["key"]] = answer
                self._answered.notify_all()
        if not self._ending:
            logger.error("A scheduler process is gone.")
            os.kill(os.getpid(), signal.SIGQUIT)

    def generate(self, rid: str, input_ids: list[int], max_new_tokens: int) -> dict[str, Any]:
        """Run one request on all workers of all nodes; for node 0."""
        with self._answered:
            key = next(self._keys)
            order = {"op": "run", "key": key, "rid": rid, "input_ids": input_ids}
            self._pipes[0].send({**order, "max_new_tokens": max_new_tokens})
            self._answers[key] = None
            while not self._answered.wait_for(lambda: self._answers[key] is not None, TICK_S):
                pass
            answer: dict[str, Any] = self._answers.pop(key)
            return answer

    def remaining(self) -> int:
        """The number of requests without an answer."""
        with self._answered:
            return sum(answer is None for answer in self._answers.values())

    def shutdown(self) -> None:
        """Ask all schedulers of all nodes to leave, and see those of this node out."""
        self._ending = True
        self._pipes[0].send({"op": "shutdown"})
        for process in self.processes:
            process.join(EXIT_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End whatever is left of this node's schedulers."""
        for process in self.processes:
            if process.is_alive():
                process.kill()
