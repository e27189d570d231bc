"""What Ctrl-C means while hosts are changed: put everything back, whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from orchestrator.session.hosts.fleet import Fleet

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_end(fleet: Fleet) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal ask for the end; the tail is never interrupted."""
    reading, writing = os.pipe()

    def handler(number: int, frame: FrameType | None) -> None:
        # Nothing that takes a lock: whatever the main thread holds just now stays held. Stopping
        # and telling are a thread's.
        os.write(writing, bytes([number]))

    watcher = threading.Thread(target=_watch, args=(reading, fleet), name="sgldbg-signals")
    watcher.start()
    # Who runs us by `nohup` wants us to outlive the terminal.
    numbers = [n for n in _NUMBERS if (n, signal.getsignal(n)) != (signal.SIGHUP, signal.SIG_IGN)]
    before = {n: signal.signal(n, handler) for n in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _watch(reading: int, fleet: Fleet) -> None:
    while os.read(reading, 1):
        if fleet.stop.is_set():
            fleet.progress.note("still putting everything back; do not close this terminal")
            continue
        fleet.stop.set("interrupted", interrupted=True)
        fleet.progress.note("interrupted: putting everything back")
