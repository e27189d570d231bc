"""What channels of every kind share: the last lines of a far stderr, and one patience."""

from __future__ import annotations

import threading
from collections import deque

# A channel that takes no byte for this long is lost, even where its link answers keep-alives: the
# process at its end has stopped. Longer than a dead link needs to be noticed (15 s at most).
WRITE_STALL_S = 20.0
_LINES = 40
_LINE_BYTES = 2000


class LastLines:
    """The last lines of a stream of bytes, in bounded memory."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=_LINES)
        self._open = b""
        self._lock = threading.Lock()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        with self._lock:
            *whole, rest = (self._open + data).split(b"\n")
            self._lines.extend(line[:_LINE_BYTES] for line in whole)
            # What is cut off belongs to a line that is too long to be shown whole anyway.
            self._open = rest[:_LINE_BYTES]

    def lines(self) -> tuple[str, ...]:
        """The lines as text; bytes that are not UTF-8 are shown as escapes."""
        with self._lock:
            kept = [*self._lines, self._open] if self._open else list(self._lines)
        return tuple(line.decode("utf-8", "backslashreplace").rstrip("\r") for line in kept)
