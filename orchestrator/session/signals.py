"""What Ctrl-C means while hosts are changed: put everything back, whatever happens."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from orchestrator.session.fleet import Fleet


@contextlib.contextmanager
def signals_end(fleet: Fleet) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal ask for the end; the tail is never interrupted."""

    def handler(number: int, frame: FrameType | None) -> None:
        if fleet.stop.is_set():
            fleet.progress.note("still putting everything back; do not close this terminal")
            return
        fleet.stop.set("interrupted", interrupted=True)
        fleet.progress.note("interrupted: putting everything back")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.signal(n, handler) for n in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
