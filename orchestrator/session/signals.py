"""What Ctrl-C means while hosts are changed: put everything back, whatever happens.

Ctrl-\\ means the same, and once that is under way, that it shall be left to the guards.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from orchestrator.session.hosts.fleet import Fleet

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LEFT = (
    "left at once: what is not back yet is put back by the guard of each host;"
    " `sgldbg status` shows what is left"
)


@contextlib.contextmanager
def signals_end(fleet: Fleet) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal ask for the end; the tail is never interrupted.

    Only SIGQUIT leaves it, where the end was asked for already.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    watcher = threading.Thread(target=_watch, args=(reading, fleet), name="sgldbg-signals")
    watcher.start()
    # Who runs us by `nohup` wants us to outlive the terminal; a key of it may be meant for others.
    kept = [n for n in (signal.SIGHUP, signal.SIGQUIT) if signal.getsignal(n) == signal.SIG_IGN]
    numbers = [n for n in _NUMBERS if n not in kept]
    # The kernel may hand a signal to any thread. Python's handler waits for the main one, which
    # waits for hosts; this is written at once, by whichever thread was chosen.
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = {n: signal.signal(n, _do_nothing) for n in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        signal.set_wakeup_fd(woken)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Stopping and telling take locks that the main thread may hold just now: they are a thread's.

    Unlike `SIG_IGN` this is not passed on to the programs that we start.
    """


def _watch(reading: int, fleet: Fleet) -> None:
    while number := os.read(reading, 1):
        if number[0] not in _NUMBERS:
            continue
        if fleet.stop.is_set() and number[0] == signal.SIGQUIT:
            fleet.progress.leave(_LEFT)
        if fleet.stop.is_set():
            fleet.progress.note("still putting everything back; do not close this terminal")
            continue
        fleet.stop.set("interrupted", interrupted=True)
        fleet.progress.note("interrupted: putting everything back")
