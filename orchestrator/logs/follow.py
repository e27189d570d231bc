"""Where the bytes of a followed log go: one file, whole, proven by offset and checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from orchestrator.userfile import reason_of


class LogSink:
    """Writes `log` events into a file, each byte once and in order.

    A file that is there already is continued, so that a channel that comes back can follow on from
    `offset`. `taken` is handed every piece that is new, after it was written: credit, records and
    lines hang there. Nothing here raises once the file is open, since events arrive in the thread
    that also carries the answers of a revert; what went wrong stands in `problem`.
    """

    def __init__(self, path: Path, taken: Callable[[bytes], None] | None = None) -> None:
        self.path = path
        self.problem = ""
        self.offset = 0
        self._taken = taken
        self._digest = hashlib.sha256()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(fd, "r+b", buffering=0)
        self._file.seek(0)
        while data := self._file.read(1 << 20):
            self._count(data)

    def write(self, offset: int, data: bytes) -> None:
        """Take the bytes at `offset` of the log; those that are there already are passed over."""
        if self._file.closed:
            return
        if offset > self.offset:
            self._fail(f"bytes {self.offset} to {offset} are missing")
            self.offset = offset
        new = data[self.offset - offset :]
        if not new:
            return
        try:
            view = memoryview(new)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            self._fail(f"{self.path.name} could not be written: {reason_of(error)}")
        self._count(new)
        if self._taken is not None:
            self._taken(new)

    def matches(self, end: Mapping[str, Any]) -> bool:
        """Whether the file holds exactly what the agent says it has sent.

        `end` is the header of the `end` event; its checksum is of the bytes from `start` on.
        """
        if not self.problem and end.get("offset") != self.offset:
            self._fail(f"ends at byte {self.offset}, the host's at {end.get('offset')}")
        if not self.problem and end.get("sha256") != self._sha256(end.get("start", 0)):
            self._fail("differs from what the host sent")
        return not self.problem

    def close(self) -> None:
        """Close the file; may be called again."""
        self._file.close()

    def _sha256(self, start: int) -> str:
        if start == 0:
            return self._digest.hexdigest()
        digest = hashlib.sha256()
        with self.path.open("rb") as stream:
            stream.seek(start)
            while data := stream.read(1 << 20):
                digest.update(data)
        return digest.hexdigest()

    def _count(self, data: bytes) -> None:
        self.offset += len(data)
        self._digest.update(data)

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem
