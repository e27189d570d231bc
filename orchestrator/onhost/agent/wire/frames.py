"""Frames over two private descriptors: read whole or not at all, written in order of urgency."""

from __future__ import annotations

import json
import os
import struct
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, Tuple

HEADER_LIMIT = 1 << 20
RAW_LIMIT = 64 << 20
LOG_RAW_LIMIT = 64 << 10
# What may wait for a controller that reads slowly. Log frames: about 20 ms of a fast link, so that
# `Writer.log` holds its caller back early. Replies: one of the largest size may always wait.
LOG_QUEUE_LIMIT = 1 << 20
REPLY_QUEUE_LIMIT = RAW_LIMIT
_LENGTH = struct.Struct(">I")


class BrokenFrame(ValueError):
    """Bytes that are not a frame of the protocol; nothing after them can be trusted."""


class FrameTooLarge(ValueError):
    """A header or its raw bytes go beyond the protocol's limit; nothing of it was sent."""


def encode(header: Dict[str, Any], raw: bytes = b"", raw_limit: int = RAW_LIMIT) -> bytes:
    """Return the frame. `bytes` is filled in from `raw`; raises `FrameTooLarge`."""
    if len(raw) > raw_limit:
        raise FrameTooLarge("%d raw bytes, the limit is %d" % (len(raw), raw_limit))
    full = dict(header, bytes=len(raw)) if raw else header
    text = json.dumps(full, separators=(",", ":")).encode("ascii")
    if len(text) > HEADER_LIMIT:
        raise FrameTooLarge("a header of %d bytes, the limit is %d" % (len(text), HEADER_LIMIT))
    return _LENGTH.pack(len(text)) + text + raw


def parse_header(text: bytes) -> Tuple[Dict[str, Any], int]:
    """Return a header and the number of raw bytes that follow it; raises `BrokenFrame`."""
    try:
        header = json.loads(text.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BrokenFrame("a header that is not JSON: %s" % error)
    if not isinstance(header, dict):
        raise BrokenFrame("a header that is no JSON object")
    size = header.get("bytes", 0)
    if type(size) is not int or not 0 <= size <= RAW_LIMIT:
        raise BrokenFrame("`bytes` is %.40r, the limit is %d" % (size, RAW_LIMIT))
    return header, size


class Reader:
    """Reads frames from a descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self) -> Optional[Tuple[Dict[str, Any], bytes]]:
        """Wait for one frame; `None` is the end between two frames. Raises `BrokenFrame`."""
        prefix = self._exactly(_LENGTH.size, at_boundary=True)
        if prefix is None:
            return None
        (length,) = _LENGTH.unpack(prefix)
        if not 0 < length <= HEADER_LIMIT:
            raise BrokenFrame("a header of %d bytes, the limit is %d" % (length, HEADER_LIMIT))
        header, size = parse_header(bytes(self._exactly(length) or b""))
        return header, bytes(self._exactly(size) or b"")

    def _exactly(self, size: int, at_boundary: bool = False) -> Optional[bytearray]:
        data = bytearray()
        while len(data) < size:
            piece = os.read(self._fd, min(size - len(data), 1 << 20))
            if not piece:
                if at_boundary and not data:
                    return None
                raise BrokenFrame("the stream ended inside a frame")
            data += piece
        return data


class Writer:
    """Writes frames from several threads to one descriptor: all replies before any log frame.

    `on_broken` is called once, from the writing thread, when nobody reads any more.
    """

    def __init__(self, fd: int, on_broken: Callable[[], None] = lambda: None) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._state = threading.Condition()
        self._replies: Deque[bytes] = deque()
        self._logs: Deque[bytes] = deque()
        self._reply_bytes = 0
        self._log_bytes = 0
        self._writing = False
        self._broken = False
        self._thread = threading.Thread(target=self._run, name="sgldbg-writer", daemon=True)
        self._thread.start()

    def reply(self, header: Dict[str, Any], raw: bytes = b"", wait: bool = True) -> None:
        """Queue a reply ahead of every log frame; raises `FrameTooLarge`.

        Waits while 64 MiB of replies are queued, unless `wait` is false (the thread that reads
        requests must never wait for the controller to read). Once nobody reads, nothing is sent.
        """
        frame = encode(header, raw)
        with self._state:
            while wait and not self._broken and self._reply_bytes >= REPLY_QUEUE_LIMIT:
                self._state.wait()
            if self._broken:
                return
            self._replies.append(frame)
            self._reply_bytes += len(frame)
            self._state.notify_all()

    def log(self, header: Dict[str, Any], raw: bytes = b"") -> None:
        """Queue a log frame (at most 64 KiB raw); waits while 1 MiB of them is queued.

        Raises `BrokenPipeError` when nobody reads any more, so that a follower ends.
        """
        frame = encode(header, raw, LOG_RAW_LIMIT)
        with self._state:
            while not self._broken and self._log_bytes > LOG_QUEUE_LIMIT:
                self._state.wait()
            if self._broken:
                raise BrokenPipeError("the controller does not read any more")
            self._logs.append(frame)
            self._log_bytes += len(frame)
            self._state.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until all replies are written or nobody reads; says whether that was so in time."""
        with self._state:
            return self._state.wait_for(
                lambda: self._broken or not (self._replies or self._writing), timeout_s
            )

    def _next(self) -> bytes:
        with self._state:
            self._writing = False
            self._state.notify_all()
            while not self._replies and not self._logs:
                self._state.wait()
            self._writing = True
            if self._replies:
                frame = self._replies.popleft()
                self._reply_bytes -= len(frame)
            else:
                frame = self._logs.popleft()
                self._log_bytes -= len(frame)
            self._state.notify_all()
            return frame

    def _run(self) -> None:
        try:
            while True:
                left = memoryview(self._next())
                while left:
                    left = left[os.write(self._fd, left) :]
        except OSError:
            with self._state:
                self._broken = True
                self._replies.clear()
                self._logs.clear()
                self._state.notify_all()
            self._on_broken()
