"""What Ctrl-C, SIGTERM and a closed terminal do to a command, from its first line to its last.

Ctrl-\\ is taken as they are, but for one thing: asked for again, it leaves at once.
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

INTERRUPTED = 130
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# What a session that is left on its way has come to is not known here.
_UNKNOWN = 7
# Somebody who asks for the third time does not want to wait for anything.
_AT_ONCE = 3
_AGAIN_S = 0.01


class Stage(enum.Enum):
    """What a signal means now."""

    IMPORTS = "nothing was begun"
    COMMAND = "what was begun is to be ended"
    ENDING = "it is being ended"
    OVER = "the exit code is known"


class Interrupts:
    """The handler of all these signals.

    While modules are imported a signal ends the process: an exception there is often swallowed by
    callbacks of the import machinery, or shown. Later it raises `KeyboardInterrupt`, once. While a
    session ends it is told, and changes nothing; when the exit code is known it stays that code.
    """

    def __init__(self) -> None:
        self.stage = Stage.IMPORTS
        self.code = INTERRUPTED
        self._count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Never prints through Python's streams, whose locks the main thread may hold just now."""
        match self.stage:
            case Stage.IMPORTS:
                _say("interrupted")
                os._exit(self.code)
            case Stage.OVER:
                os._exit(self.code)
            case Stage.ENDING:
                self._count += number == signal.SIGQUIT
                if self._count > 1:
                    os._exit(_UNKNOWN)
                _say("still ending; do not close this terminal")
            case Stage.COMMAND:
                self._ask(number)

    def forget(self) -> None:
        """What was asked for was swallowed; the next one counts as the first."""
        self._count = 0

    def _ask(self, number: int) -> None:
        self._count += 1
        if self._count == 1:
            raise KeyboardInterrupt
        if self._count >= _AT_ONCE or number == signal.SIGQUIT:
            os._exit(self.code)
        _say("still ending; once more leaves at once")


def catch_signals() -> None:
    """From now on; what the caller ignores, as `nohup` does, stays ignored."""
    handler = Interrupts()
    for number in _NUMBERS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
    sys.unraisablehook = _unraisable


def begin_command(cut_short: int) -> None:
    """All is imported that a command begins with; `cut_short` is its code if it is left at once."""
    handler = _find_handler()
    if handler is not None:
        handler.code, handler.stage = cut_short, Stage.COMMAND


def hold_signals() -> None:
    """Something runs that must come to its end, or has handlers of its own."""
    handler = _find_handler()
    if handler is not None:
        handler.stage = Stage.ENDING
        handler.forget()


def settle(code: int) -> None:
    """The exit code is known: no signal changes it any more, whatever is still to be printed."""
    handler = _find_handler()
    if handler is not None:
        handler.code, handler.stage = code, Stage.OVER


def _find_handler() -> Interrupts | None:
    """Ours, where the program itself was started; a test that calls a command has none."""
    found = (signal.getsignal(number) for number in _NUMBERS)
    return next((handler for handler in found if isinstance(handler, Interrupts)), None)


def _unraisable(what: Any) -> None:
    """An interrupt in a callback of Python's own is asked for again, where it can be raised."""
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return
    handler = _find_handler()
    if handler is not None:
        handler.forget()
        again = next(n for n in _NUMBERS if signal.getsignal(n) is handler)
        # Not from here: this function is as little a place to raise anything.
        threading.Timer(_AGAIN_S, os.kill, (os.getpid(), again)).start()


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())
