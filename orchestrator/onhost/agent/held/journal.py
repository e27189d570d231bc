"""The append-only record of what a session changes on its host, durable line by line."""

from __future__ import annotations

import json
import os
import time
import zlib
from typing import Any, Callable, Dict, List, Optional

from ..space import naming

Record = Dict[str, Any]

# Every journaled step, in the order of a whole session. A kill test walks this list, so a step
# that is not here cannot be taken (`SessionState.step` refuses it).
STEPS = (
    "begin",
    "plan",  # what will be staged and how the directories are now; it has no effect by itself
    "lock",
    "share",  # another host of the session has the lock: its files are ours too
    "stage:new",
    "stage:keep",
    "describe",
    "stop:original",
    "swap:pyc",
    "swap:file",
    "table",
    "start:debug",
    "stop:debug",
    "unshare",
    "revert:staged",
    "revert:file",
    "revert:pyc",
    "revert:dirs",
    "restore",
    "unlock",
    "finish",
)
# Steps that only take back: they go on where the journal itself cannot be written (a full disk).
TAKING_BACK = frozenset(STEPS[STEPS.index("stop:debug") :])


def seal(record: Record) -> bytes:
    """One line of JSON that ends with its own checksum; `unseal` reads it."""
    body = json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")
    return body[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(body)


def unseal(line: bytes) -> Optional[Record]:
    """The record of a line that `seal` wrote, or `None` where the line is torn or damaged."""
    line = line.rstrip(b"\n")
    body, mark, rest = line.rpartition(b',"crc":"')
    body += b"}"
    if not mark or rest != b'%08x"}' % zlib.crc32(body):
        return None
    try:
        record = json.loads(body.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def read(path: str) -> List[Record]:
    """All whole records of a journal, in order. A torn line is as if it had not been written."""
    with open(path, "rb") as file:
        return parse(file.read())


def parse(data: bytes) -> List[Record]:
    """All whole records of a journal's bytes."""
    return [record for record in map(unseal, data.split(b"\n")) if record is not None]


def sync_dir(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Journal:
    """An open journal; `records` are those read and those appended since.

    `on_line` is called with each record once its line is durable: tests end the process there.
    """

    def __init__(self, path: str, on_line: Optional[Callable[[Record], None]] = None) -> None:
        self.path = path
        self.on_line = on_line
        self.records = read(path)
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

    @classmethod
    def create(cls, path: str, on_line: Optional[Callable[[Record], None]] = None) -> "Journal":
        """A new, empty journal; `FileExistsError` where there is one."""
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        sync_dir(os.path.dirname(path))
        return cls(path, on_line)

    def append(self, record: Record) -> Record:
        """Write one record and wait until it is durable; `OSError` where it could not be."""
        number = self.records[-1]["n"] + 1 if self.records else 1
        record = dict(record, n=number, at=round(time.time(), 3))
        size = os.fstat(self._fd).st_size
        try:
            with naming(self.path):
                self._write(self._gap(size) + seal(record))
        except OSError:
            os.ftruncate(self._fd, size)
            raise
        self.records.append(record)
        if self.on_line is not None:
            self.on_line(record)
        return record

    def _gap(self, size: int) -> bytes:
        """A newline where an earlier writer died within a line, so that it spoils only its own."""
        return b"\n" if size and os.pread(self._fd, 1, size - 1) != b"\n" else b""

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]
        os.fsync(self._fd)

    def close(self) -> None:
        """Give the descriptor back; may be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
