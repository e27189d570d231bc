"""A followed log arrives whole, once, and provably so."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from orchestrator.logs.follow import LogSink

DATA = bytes(range(256)) * 40


def make_end(data: bytes, start: int = 0) -> dict[str, object]:
    """The agent's `end` event after these bytes."""
    return {
        "event": "end",
        "offset": len(data),
        "start": start,
        "sha256": hashlib.sha256(data[start:]).hexdigest(),
    }


def test_bytes_are_written_once_and_in_order(tmp_path: Path) -> None:
    """Pieces that come again after a reconnect are passed over, also where they only overlap."""
    taken: list[bytes] = []
    sink = LogSink(tmp_path / "stderr.log", taken.append)
    sink.write(0, DATA[:100])
    sink.write(0, DATA[:100])
    sink.write(50, DATA[50:200])
    sink.write(200, DATA[200:])
    assert sink.matches(make_end(DATA))
    sink.close()
    sink.close()
    sink.write(len(DATA), b"late")
    assert (tmp_path / "stderr.log").read_bytes() == b"".join(taken) == DATA
    assert (tmp_path / "stderr.log").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_is_continued(tmp_path: Path) -> None:
    """A channel that comes back follows on from `offset`; the agent's checksum starts there."""
    sink = LogSink(tmp_path / "stderr.log")
    sink.write(0, DATA[:1000])
    sink.close()
    sink = LogSink(tmp_path / "stderr.log")
    assert sink.offset == 1000
    sink.write(1000, DATA[1000:])
    assert sink.matches(make_end(DATA, start=1000))
    assert sink.matches(make_end(DATA))
    sink.close()
    assert (tmp_path / "stderr.log").read_bytes() == DATA


@pytest.mark.parametrize(
    ("writes", "end", "problem"),
    [
        ([(0, DATA[:10]), (20, DATA[20:])], DATA, "bytes 10 to 20 are missing"),
        ([(0, DATA[:10])], DATA, "ends at byte 10, the host's at 10240"),
        ([(0, b"x" + DATA[1:])], DATA, "differs from what the host sent"),
    ],
)
def test_what_is_not_whole_is_said(
    tmp_path: Path, writes: list[tuple[int, bytes]], end: bytes, problem: str
) -> None:
    """Missing, short or different: never silently, and never as an exception."""
    sink = LogSink(tmp_path / "log")
    for offset, data in writes:
        sink.write(offset, data)
    assert not sink.matches(make_end(end))
    assert sink.problem == problem
    sink.close()


def test_a_full_disk_of_ours_does_not_stop_the_channel(tmp_path: Path) -> None:
    """Events arrive in the thread that carries a revert's answers: nothing is raised there."""
    taken: list[bytes] = []
    sink = LogSink(tmp_path / "log", taken.append)
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, sink._file.fileno())
    os.close(full)
    sink.write(0, b"text")
    assert sink.problem == "log could not be written: no space left on device"
    assert (taken, sink.offset) == ([b"text"], 4)
    sink.close()
