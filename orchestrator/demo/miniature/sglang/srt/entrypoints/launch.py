"""The life of the main process, from its first log line to its exit code."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from typing import Any

from ..models.llama import encode
from ..owner import watch_owner
from ..process_title import configure_logger
from ..server_args import ServerArgs
from .engine import TICK_S, Engine
from .http_server import HttpServer, Service

logger = logging.getLogger(__name__)

WARMUP_TEXT = "The capital city of France is"
WARMUP_TOKENS = 8


def run_server(args: ServerArgs) -> int:
    """Serve until SIGTERM; the exit code."""
    configure_logger()
    logger.info("server_args=%s", args)
    signal.signal(signal.SIGQUIT, _kill_process_tree)
    watch_owner(_end_tree)
    try:
        engine = Engine(args)
    except OSError as error:
        logger.error("The workers cannot meet at %s: %s", args.dist_init_addr, error)
        return 1
    except EOFError:
        logger.error("A scheduler process died while it was starting.")
        return 1
    return _follow(args, engine) if args.node_rank else _lead(args, engine)


def _kill_process_tree(signum: int, frame: Any) -> None:
    """What a failing scheduler asks for: nothing of this node is left behind."""
    os.write(2, b"Received sigquit from a child process. It usually means the child failed.\n")
    _end_tree()


def _end_tree() -> None:
    """At once, our workers with us: nobody is left who could be told anything."""
    for process in multiprocessing.active_children():
        process.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def _lead(args: ServerArgs, engine: Engine) -> int:
    """Node 0: HTTP, the warm-up request, and the drain at the end."""
    service = Service(engine, args)
    server = _open_http(args, service)
    if server is None:
        engine.shutdown()
        return 1
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    logger.info("INFO:     Uvicorn running on http://%s:%d", args.host, args.port)
    if not args.skip_server_warmup:
        engine.generate("warmup", encode(WARMUP_TEXT), WARMUP_TOKENS)
    service.status = "ready"
    logger.info("The server is fired up and ready to roll!")
    while not stop.wait(TICK_S):
        pass
    service.status = "stopping"
    logger.info("SIGTERM received. Draining requests and shutting down...")
    while engine.remaining():
        time.sleep(0.02)
    logger.info("Gracefully exiting... Remaining number of requests 0.")
    server.shutdown()
    engine.shutdown()
    return 0


def _follow(args: ServerArgs, engine: Engine) -> int:
    """Any other node: no API, only a health check, until node 0 sends the workers home."""
    server = _open_http(args, None)
    if server is None:
        engine.kill()
        return 1
    logger.info(
        "Dummy health check server started in background thread at %s:%d", args.host, args.port
    )
    for process in engine.processes:
        while process.is_alive():
            process.join(TICK_S)
        logger.info("Scheduler %d terminated with %s", process.pid, process.exitcode)
    server.shutdown()
    return int(any(process.exitcode for process in engine.processes))


def _open_http(args: ServerArgs, service: Service | None) -> HttpServer | None:
    try:
        server = HttpServer((args.host, args.port), service)
    except OSError as error:
        logger.error("%s while attempting to bind on %s:%d", error, args.host, args.port)
        return None
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server
