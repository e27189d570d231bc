"""A scheduler: the process of one rank, which owns the models and runs every batch."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from multiprocessing.connection import Connection
from typing import Any

from ..distributed.parallel_state import TensorParallelGroup, accept_peers, join_peers
from ..process_title import configure_logger, set_process_title
from ..server_args import ServerArgs
from ..speculative.eagle_worker import Decoded, EAGLEWorker

logger = logging.getLogger(__name__)


class Scheduler:
    """Runs what rank 0 broadcasts, in the same order on every worker."""

    def __init__(self, args: ServerArgs, rank: int) -> None:
        logger.info("Load weight begin.")
        self.rank = rank
        self.worker = EAGLEWorker(args.speculative_algorithm, args.speculative_num_steps)
        logger.info("Load weight end. type=%s", type(self.worker.target).__name__)

    def event_loop(self, main: Connection, group: TensorParallelGroup) -> None:
        """Until an order to shut down; the end of our main process is the same."""
        while True:
            try:
                order = group.next_from(main)
            except EOFError:
                return
            if self.rank == 0:
                group.broadcast(order)
            if order["op"] == "shutdown":
                return
            result = self.run_batch(order)
            if self.rank != 0:
                group.links[0].send(result)
                continue
            for rank, other in enumerate(group.gather(), start=1):
                if other["output_ids"] != result["output_ids"]:
                    raise RuntimeError(f"TP{rank} and TP0 disagree on request {order['rid']}")
            main.send(result)

    def run_batch(self, order: dict[str, Any]) -> dict[str, Any]:
        """All tokens of one request."""
        started = time.perf_counter()
        prompt, rid = order["input_ids"], order["rid"]
        if self.rank == 0:
            logger.info("Prefill batch, #new-seq: 1, #new-token: %d", len(prompt))
        decoded = self.worker.forward_batch_generation(rid, prompt, order["max_new_tokens"])
        if self.rank == 0 and decoded.verify_ct:
            self._log_decode(decoded, time.perf_counter() - started)
        ids, passes = decoded.output_ids, decoded.verify_ct
        return {"key": order["key"], "output_ids": ids, "verify_ct": passes}

    def _log_decode(self, decoded: Decoded, seconds: float) -> None:
        # The first token comes from the prompt, all others from passes of the target.
        accepted = (len(decoded.output_ids) - 1) / decoded.verify_ct
        logger.info(
            "Decode batch, #running-req: 1, #token: %d, accept len: %.2f, "
            "gen throughput (token/s): %.2f",
            len(decoded.output_ids),
            accepted,
            len(decoded.output_ids) / seconds,
        )


def run_scheduler_process(
    args: ServerArgs, rank: int, main: Connection, listener: socket.socket | None
) -> None:
    """The life of a worker process; a failure is logged and told to the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle
    parent = os.getppid()
    configure_logger(f" TP{rank}")
    if not set_process_title(f"sglang::scheduler_TP{rank}"):
        logger.warning("The process title cannot be set here.")
    try:
        scheduler = Scheduler(args, rank)
        if listener is None:
            group = join_peers(main, args.dist_address(), rank)
        else:
            group = accept_peers(main, listener, args.tp_size)
        main.send({"status": "ready", "rank": rank})
        scheduler.event_loop(main, group)
    except EOFError:
        return  # the main process went away while the workers were meeting
    except Exception:
        logger.exception("Scheduler hit an exception:")
        if os.getppid() == parent:
            os.kill(parent, signal.SIGQUIT)
