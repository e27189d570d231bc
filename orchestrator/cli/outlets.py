"""Standard streams whose loss is remembered: a full disk must not decide how a session ends."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO


class Outlet:
    """A text stream that takes everything; `problem` says since when nobody gets it.

    `refusal` is what the first word to be written meets. All but writing is the stream's own.
    """

    def __init__(self, stream: TextIO, refusal: OSError | None = None) -> None:
        self._stream = stream
        self._refusal = refusal
        self.problem: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or let it go."""
        if not isinstance(text, str):
            raise TypeError(f"text is written here, not {type(text).__name__}")
        if self.problem is None:
            try:
                if self._refusal is not None and text:
                    raise self._refusal
                self._stream.write(text)
            except OSError as error:
                self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush, or let go what is still buffered."""
        if self.problem is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, problem: OSError) -> None:
        """What is still buffered goes nowhere: it must not fail once more when Python exits."""
        self.problem = problem
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, self._stream.fileno())
            os.close(null)


@dataclass(frozen=True, slots=True)
class Outlets:
    """Both of a command."""

    stdout: Outlet
    stderr: Outlet

    @property
    def reader_left(self) -> bool:
        """Whether stdout was a pipe whose reader has seen enough."""
        return self.stdout.problem is not None and self.stdout.problem.errno == errno.EPIPE


@contextlib.contextmanager
def open_outlets() -> Iterator[Outlets]:
    """Put outlets in the place of stdout and stderr; flushed at the end, and taken away again."""
    before = sys.stdout, sys.stderr
    _fill_descriptors()
    outlets = Outlets(_make(before[0]), _make(before[1]))
    sys.stdout, sys.stderr = outlets.stdout, outlets.stderr
    try:
        yield outlets
    finally:
        outlets.stdout.flush()
        outlets.stderr.flush()
        sys.stdout, sys.stderr = before


def _fill_descriptors() -> None:
    """A file of ours must never get the number of a stream that the caller has closed."""
    for _ in range(3):
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return
        os.set_inheritable(descriptor, True)


def _make(stream: TextIO | None) -> Outlet:
    if stream is None:  # closed by the caller
        closed = OSError(errno.EBADF, "it is closed")
        return Outlet(io.StringIO(), closed)
    if hasattr(stream, "reconfigure"):
        # What a character set lacks is written as an escape. For plain ASCII, which is no locale
        # that anybody chose, click would write past this stream.
        ascii_only = codecs.lookup(stream.encoding).name == "ascii"
        stream.reconfigure(encoding="utf-8" if ascii_only else None, errors="backslashreplace")
    return Outlet(stream)
