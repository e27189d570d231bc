"""Finds probe records in raw bytes of a server's stderr or of a spool file."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.model.record import Record

_MARK = b"@sgldbg1 "
# `@sgldbg1 <length> <json> <crc32>\n` is at most 4,096 bytes; see docs/reference/record.md.
_LONGEST = 4096
_LENGTH = re.compile(rb"(\d{1,4}) ")
_CHECKSUM = re.compile(rb" ([0-9a-f]{8})(?![0-9a-f])")
_MOST_PARTS = 64
_MOST_OPEN = 256
_NOT_A_RECORD = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class RecordReader:
    """Reads the records of one host out of a stream that arrives in arbitrary pieces.

    A record may begin anywhere in a line and be followed by other text. What begins with the mark
    and does not verify is counted in `damaged`; whatever the chunks, the result is the same. With
    `session`, records of other sessions (an older life's lines in the same file) are passed over.
    """

    def __init__(self, host: str, session: str | None = None) -> None:
        self.host = host
        self.session = session
        self.damaged = 0
        self._data = b""
        self._parts: dict[str, dict[int, str]] = {}

    def feed(self, data: bytes) -> list[Record]:
        """Take the next bytes; return the records that they completed."""
        self._data += data
        return self._scan(at_end=False)

    def finish(self) -> list[Record]:
        """The stream has ended: a last line without its newline counts, open parts are damage."""
        found = self._scan(at_end=True)
        self._data = b""
        self.damaged += len(self._parts)
        self._parts.clear()
        return found

    def _scan(self, at_end: bool) -> list[Record]:
        data, start = self._data, 0
        found: list[Record] = []
        while (mark := data.find(_MARK, start)) >= 0:
            window = data[mark : mark + _LONGEST]
            end = window.find(b"\n") + 1
            if not end and len(window) < _LONGEST and not at_end:
                self._data = data[mark:]
                return found
            # What stands behind the newline may not have arrived yet: it must not matter.
            window = window[: end or _LONGEST]
            text = _parse_line(window)
            if text is None:
                self.damaged += 1
                start = mark + len(_MARK)
                continue
            start = mark + _size_of(text)
            record = self._take(text)
            if record is not None:
                found.append(record)
        self._data = data[max(start, len(data) - len(_MARK) + 1) :]
        return found

    def _take(self, text: bytes) -> Record | None:
        """The record in this JSON; `None` for a part of one, damage, or another session's."""
        try:
            raw = json.loads(text)
            if "part" in raw:
                joined = self._join(raw)
                if joined is None:
                    return None
                raw = json.loads(joined)
            record = parse_record(raw, self.host)
        except _NOT_A_RECORD:
            self.damaged += 1
            return None
        return record if self.session in (None, record.session) else None

    def _join(self, raw: Mapping[str, Any]) -> str | None:
        index, size = raw["part"]
        if not 1 <= int(index) <= int(size) <= _MOST_PARTS:
            raise ValueError("part out of range")
        parts = self._parts.setdefault(str(raw["id"]), {})
        parts[int(index)] = str(raw["text"])
        if len(parts) == int(size):
            del self._parts[str(raw["id"])]
            return "".join(parts[i] for i in range(1, int(size) + 1))
        if len(self._parts) > _MOST_OPEN:  # a worker that died between parts; the oldest goes
            del self._parts[next(iter(self._parts))]
            self.damaged += 1
        return None


def _parse_line(window: bytes) -> bytes | None:
    """The JSON of the record at the start of `window`, if length and checksum agree."""
    length = _LENGTH.match(window, len(_MARK))
    if length is None:
        return None
    text = window[length.end() : length.end() + int(length[1])]
    checksum = _CHECKSUM.match(window, length.end() + len(text))
    if checksum is None or b"%08x" % binascii.crc32(text) != checksum[1]:
        return None
    return text


def cut_records(line: bytes) -> bytes:
    """The line without the probe records in it: they are shown as records, not as text."""
    kept, start = [], 0
    while (mark := line.find(_MARK, start)) >= 0:
        text = _parse_line(line[mark : mark + _LONGEST])
        if text is None:
            kept.append(line[start : mark + len(_MARK)])
            start = mark + len(_MARK)
            continue
        kept.append(line[start:mark])
        start = mark + _size_of(text)
    return b"".join([*kept, line[start:]])


def _size_of(text: bytes) -> int:
    """The bytes that a record takes up, without its newline."""
    return len(_MARK) + len(str(len(text))) + 1 + len(text) + 1 + 8


def parse_record(raw: Mapping[str, Any], host: str) -> Record:
    """The record that a probe wrote as `raw`; one of `_NOT_A_RECORD` is raised for anything else.

    `host` is what the inventory calls the host it was read from: hosts that share an install share
    the runtime file and the name in it.
    """
    kind = str(raw["k"])
    if kind not in ("import", "hit", "skip", "spent", "error"):
        raise ValueError(f"unknown kind {kind!r}")
    return Record(
        session=str(raw["s"]),
        kind=kind,
        site=str(raw["p"]),
        host=host,
        pid=int(raw["pid"]),
        title=str(raw["title"]),
        seq=int(raw["n"]),
        phase=str(raw["ph"]),
        mono_s=float(raw["m"]),
        wall_s=float(raw["w"]),
        ranks={str(k): int(v) for k, v in raw.get("ranks", {}).items()},
        values={_whole(str(k)): _whole(v) for k, v in raw.get("v", {}).items()},
        keys=tuple(_whole(key) for key in raw.get("key", ())),
        errors={_whole(str(k)): _whole(str(v)) for k, v in raw.get("e", {}).items()},
        expect={str(k): v if v is None else bool(v) for k, v in raw.get("x", {}).items()},
        requests=tuple(_whole(str(r)) for r in raw.get("req", ())),
        note=str(raw.get("note", "")),
        generation=int(raw.get("g", 0)),
    )


def _whole(value: Any) -> Any:
    """The value without lone surrogates, which no file and no terminal takes."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def merge(*streams: Iterable[Record]) -> list[Record]:
    """Records of several streams, each once, in order of time; stderr and spool hold copies."""
    unique = {identity(record): record for stream in streams for record in stream}
    return sorted(unique.values(), key=lambda r: (r.wall_s, r.host, r.pid, r.mono_s, r.seq))


def identity(record: Record) -> tuple[object, ...]:
    """What two copies of one record share and no two records do, reused pids included."""
    return (record.host, record.pid, record.site, record.kind, record.seq, record.mono_s)
