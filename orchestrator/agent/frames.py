"""The controller's half of the frame format: requests to bytes, bytes to replies and events."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

# The limits of docs/reference/agent-protocol.md. The host has a copy of its own: what runs there
# imports nothing of the controller, and a test holds the two together.
HEADER_LIMIT = 1 << 20
RAW_LIMIT = 64 << 20
_LENGTH = struct.Struct(">I")

Frame = tuple[dict[str, Any], bytes]


class BrokenFrame(ValueError):
    """Bytes that are not a frame of the protocol; nothing after them can be trusted."""


def encode(header: Mapping[str, Any], raw: bytes = b"") -> bytes:
    """The frame of a header and its raw bytes; raises `ValueError` beyond the limits."""
    if len(raw) > RAW_LIMIT:
        raise ValueError(f"{len(raw)} raw bytes, the limit is {RAW_LIMIT}")
    full = {**header, "bytes": len(raw)} if raw else header
    text = json.dumps(full, separators=(",", ":")).encode("ascii")
    if len(text) > HEADER_LIMIT:
        raise ValueError(f"a header of {len(text)} bytes, the limit is {HEADER_LIMIT}")
    return _LENGTH.pack(len(text)) + text + raw


class Decoder:
    """Cuts a stream into frames, however its bytes arrive; holds at most one frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._header: dict[str, Any] | None = None
        self._need = _LENGTH.size
        self._part = "length"

    @property
    def is_inside_frame(self) -> bool:
        """Whether the stream must not end here."""
        return self._part != "length" or bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes; raises `BrokenFrame`."""
        self._buffer += data
        while len(self._buffer) >= self._need:
            piece = bytes(self._buffer[: self._need])
            del self._buffer[: self._need]
            frame = self._accept(piece)
            if frame is not None:
                yield frame

    def _accept(self, piece: bytes) -> Frame | None:
        if self._part == "length":
            (length,) = _LENGTH.unpack(piece)
            if not 0 < length <= HEADER_LIMIT:
                raise BrokenFrame(f"a header of {length} bytes, the limit is {HEADER_LIMIT}")
            self._part, self._need = "header", length
            return None
        if self._part == "header":
            self._header = _parse_header(piece)
            size = self._header.get("bytes", 0)
            if size:
                self._part, self._need = "raw", size
                return None
            piece = b""
        header, self._header = self._header or {}, None
        self._part, self._need = "length", _LENGTH.size
        return header, piece


def _parse_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BrokenFrame(f"a header that is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise BrokenFrame("a header that is no JSON object")
    size = header.get("bytes", 0)
    if type(size) is not int or not 0 <= size <= RAW_LIMIT:
        raise BrokenFrame(f"`bytes` is {size!r:.40}, the limit is {RAW_LIMIT}")
    return header
