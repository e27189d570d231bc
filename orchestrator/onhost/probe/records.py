"""Writes records: lines of `docs/reference/record.md`, to stderr and to a file per process."""

from __future__ import annotations

import binascii
import itertools
import json
import os
import time
from typing import Any, Dict, List

from .rendering import finite
from .state import STATE
from .worker import find_ranks, read_title

LINE = 4096  # PIPE_BUF: one write of up to here is never torn on a pipe or an O_APPEND file
PIECE = 1900  # of JSON per part; escaping doubles it at most, which still fits a line
LONGEST = 48 * 1024  # of one record's JSON; beyond it the values are left out
SPOOL = 64 << 20  # bytes of one process's spool file; a probe without a limit must not fill /tmp


def emit(kind: str, site: str, note: str = "", **more: Any) -> None:
    """Write one record; takes no lock, since a signal handler may write one, too."""
    seq = next(STATE.seq.setdefault(site, itertools.count(1)))
    if STATE.unsent:
        note = "%s%d lines did not reach stderr" % (note + "; " if note else "", STATE.unsent)
    record: Dict[str, Any] = {
        "s": STATE.session,
        "k": kind,
        "p": site,
        "h": STATE.host,
        "pid": os.getpid(),
        "title": read_title(),
        "ranks": find_ranks(),
        "n": seq,
        "ph": STATE.phase,
        "g": STATE.generation,
        "m": round(time.monotonic(), 6),
        "w": round(time.time(), 3),
    }
    record.update((key, finite(value)) for key, value in more.items() if value)
    if note:
        record["note"] = note
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    if len(text) > LONGEST:
        size = len(text)
        record.update(v={}, key=[], e={"record": "left out: %d bytes of values" % size})
        text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    write_lines(make_lines(text, "%d.%s.%d" % (record["pid"], site, seq)))


def make_lines(text: str, name: str) -> List[bytes]:
    whole = make_line(text)
    if len(whole) <= LINE:
        return [whole]
    pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
    size = len(pieces)
    parts = ({"part": [i, size], "id": name, "text": p} for i, p in enumerate(pieces, 1))
    return [make_line(json.dumps(part, separators=(",", ":"))) for part in parts]


def make_line(text: str) -> bytes:
    data = text.encode("ascii")
    return b"@sgldbg1 %d %s %08x\n" % (len(data), data, binascii.crc32(data) & 0xFFFFFFFF)


def write_lines(lines: List[bytes]) -> None:
    for line in lines:
        try:
            os.write(2, line)
        except OSError:  # closed, or a full pipe that does not block: all or nothing up to 4096
            STATE.unsent += 1
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # Opened anew each time: a server may close descriptors that it does not know.
        fd = os.open(os.path.join(STATE.dir, "%d.jsonl" % os.getpid()), flags, 0o600)
        try:
            if os.fstat(fd).st_size < SPOOL:
                os.write(fd, b"".join(lines))
        finally:
            os.close(fd)
    except OSError:
        return
