"""Following files: every byte once, in order, under credit, to an end that says why."""

from __future__ import annotations

import hashlib
import os
import queue
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from orchestrator.onhost.agent.look import tail
from orchestrator.onhost.agent.refusal import Refusal

from .conftest import wait_for


class Frames:
    """Takes the place of the wire; keeps what it is given."""

    def __init__(self) -> None:
        self.frames: queue.Queue[tuple[dict, bytes]] = queue.Queue()
        self.broken = False

    def log(self, header: dict, raw: bytes) -> None:
        if self.broken:
            raise BrokenPipeError("gone")
        assert len(raw) <= 64 << 10
        self.frames.put((header, raw))

    def next(self) -> tuple[dict, bytes]:
        return self.frames.get(timeout=30)

    def until_end(self, stream: int = 1) -> tuple[bytes, dict]:
        """All data of a stream up to its end, with offsets that join."""
        data, offset = b"", None
        while True:
            header, raw = self.next()
            assert header["stream"] == stream
            if header["event"] == "end":
                return data, header
            assert offset in (None, header["offset"])
            offset = header["offset"] + len(raw)
            data += raw


@pytest.fixture
def frames() -> Iterator[Frames]:
    yield Frames()
    wait_for(
        lambda: not any(t.name == "sgldbg-follow" for t in threading.enumerate()), "the thread"
    )


def append(path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def test_a_file_is_followed_from_before_it_exists(frames, tmp_path):
    """A missing file is waited for; raw bytes come as they are written; the end has the sha256."""
    path = tmp_path / "log"
    follower = tail.Follower(frames)
    follower.follow(1, str(path), 0, 1 << 20)
    append(path, b"one\n\xff\x00no newline")
    header, raw = frames.next()
    assert (header, raw) == ({"event": "log", "stream": 1, "offset": 0}, b"one\n\xff\x00no newline")
    append(path, b"\rmore\n")
    follower.unfollow(1, drain=True)
    data, end = frames.until_end()
    whole = path.read_bytes()
    assert raw + data == whole
    assert end == {
        "event": "end",
        "stream": 1,
        "offset": len(whole),
        "start": 0,
        "sha256": hashlib.sha256(whole).hexdigest(),
        "why": "drained",
    }


def test_no_more_than_the_credit(frames, tmp_path):
    """Without credit nothing is sent, and a drain waits for it too."""
    path = tmp_path / "log"
    path.write_bytes(os.urandom(300_000))
    follower = tail.Follower(frames)
    follower.follow(1, str(path), 0, 70_000)
    got = frames.next()[1] + frames.next()[1]
    assert len(got) == 70_000
    follower.unfollow(1, drain=True)
    with pytest.raises(queue.Empty):
        frames.frames.get(timeout=0.2)
    follower.credit(1, 1 << 20)
    data, end = frames.until_end()
    assert got + data == path.read_bytes()
    assert end["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_resuming(frames, tmp_path):
    """A stream from an offset sends what follows, and its sha256 covers what it sent."""
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    follower = tail.Follower(frames)
    follower.follow(1, str(path), 4, 100)
    follower.unfollow(1, drain=True)
    data, end = frames.until_end()
    assert (data, end["start"], end["offset"]) == (b"456789", 4, 10)
    assert end["sha256"] == hashlib.sha256(b"456789").hexdigest()


def test_rotation(frames, tmp_path):
    """A file that was renamed is read to its end, then the stream ends and says so."""
    path = tmp_path / "log"
    path.write_bytes(b"old\n")
    follower = tail.Follower(frames)
    follower.follow(1, str(path), 0, 100)
    assert frames.next()[1] == b"old\n"
    os.rename(path, tmp_path / "log.1")
    append(tmp_path / "log.1", b"last words\n")
    path.write_bytes(b"new\n")
    data, end = frames.until_end()
    assert (data, end["why"], end["offset"]) == (b"last words\n", "rotated", 15)


def test_truncation(frames, tmp_path):
    """A file that became shorter than what was read ends its stream."""
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    follower = tail.Follower(frames)
    follower.follow(1, str(path), 0, 100)
    assert frames.next()[1] == b"0123456789"
    os.truncate(path, 3)
    assert frames.until_end() == (
        b"",
        {
            "event": "end",
            "stream": 1,
            "offset": 10,
            "start": 0,
            "sha256": hashlib.sha256(b"0123456789").hexdigest(),
            "why": "truncated",
        },
    )


def test_ends_without_a_file(frames, tmp_path):
    """A file that never came drains to nothing; one that cannot be read says why."""
    follower = tail.Follower(frames)
    follower.follow(1, str(tmp_path / "never"), 0, 100)
    follower.unfollow(1, drain=True)
    assert frames.until_end()[1]["why"] == "drained"
    follower.follow(1, str(tmp_path), 0, 100)
    assert frames.until_end()[1]["why"] == "cannot be read: Is a directory"


def test_unfollow_at_once(frames, tmp_path):
    """Without drain nothing more is sent; unknown and doubled streams are refused."""
    path = tmp_path / "log"
    path.write_bytes(b"x")
    follower = tail.Follower(frames)
    follower.follow(1, str(path), 0, 0)
    with pytest.raises(Refusal, match="stream 1 is in use"):
        follower.follow(1, str(path), 0, 0)
    follower.unfollow(1, drain=False)
    assert frames.until_end()[1]["why"] == "unfollowed"
    with pytest.raises(Refusal, match="there is no stream 1"):
        follower.unfollow(1, drain=False)
    follower.credit(1, 5)


def test_many_files_with_writers(frames, tmp_path):
    """Twelve growing files arrive whole, by one thread."""
    follower = tail.Follower(frames)
    paths = {n: tmp_path / f"log{n}" for n in range(12)}
    for stream, path in paths.items():
        follower.follow(stream, str(path), 0, 1 << 30)
    for turn in range(50):
        for path in paths.values():
            append(path, b"%d %s\n" % (turn, os.urandom(2000)))
    for stream in paths:
        follower.unfollow(stream, drain=True)
    got: dict[int, bytes] = dict.fromkeys(paths, b"")
    ended = 0
    while ended < len(paths):
        header, raw = frames.next()
        ended += header["event"] == "end"
        assert header["event"] == "end" or header["offset"] == len(got[header["stream"]])
        got[header["stream"]] += raw
    assert got == {stream: path.read_bytes() for stream, path in paths.items()}


def test_nobody_reads(frames, tmp_path):
    """Once the wire is gone the thread ends and gives its descriptors back."""
    path = tmp_path / "log"
    path.write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    frames.broken = True
    tail.Follower(frames).follow(1, str(path), 0, 100)
    wait_for(lambda: len(os.listdir("/proc/self/fd")) == before, "the descriptor")


def test_one_follower_per_agent(frames):
    """Ops in different threads find the same follower."""
    context = SimpleNamespace(writer=frames)
    assert tail.find_follower(context) is tail.find_follower(context)


def test_the_last_lines(tmp_path):
    """At most so many lines and 64 KiB; a missing file is refused with its name."""
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthree")
    assert tail.read_tail(str(path), 2) == b"two\nthree"
    assert tail.read_tail(str(path), 0) == b""
    path.write_bytes(b"one\ntwo\n10%\r20%\r30%\n")
    assert tail.read_tail(str(path), 2) == b"two\n10%\r20%\r30%\n"
    path.write_bytes(b"")
    assert tail.read_tail(str(path), 2) == b""
    path.write_bytes(b"x" * 100_000)
    assert tail.read_tail(str(path), 5) == b"x" * 65536
    with pytest.raises(Refusal) as refused:
        tail.read_tail(str(tmp_path / "no"), 5)
    expected = f"cannot read `{tmp_path}/no`: No such file or directory"
    assert (refused.value.code, refused.value.message) == ("missing", expected)


def test_a_pipe_has_no_last_lines(tmp_path):
    """One that stands in the place of a log is refused at once, though nobody writes to it."""
    os.mkfifo(tmp_path / "log")
    with pytest.raises(Refusal) as refused:
        tail.read_tail(str(tmp_path / "log"), 5)
    expected = f"cannot read `{tmp_path / 'log'}`: it is not a file"
    assert (refused.value.code, refused.value.message) == ("missing", expected)


def test_spools(tmp_path):
    """New bytes of each spool by offset, within a limit; links and other files are left alone."""
    (tmp_path / "1.jsonl").write_bytes(b"aaaa")
    (tmp_path / "2.jsonl").write_bytes(b"bbbb")
    (tmp_path / "table.json").write_bytes(b"{}")
    (tmp_path / "3.jsonl").symlink_to("/etc/passwd")
    (tmp_path / "4.jsonl").mkdir()
    found = tail.read_spool(str(tmp_path), {"1.jsonl": 1, "9.jsonl": 5}, 5)
    assert found == [
        {"name": "1.jsonl", "offset": 1, "data": b"aaa"},
        {"name": "2.jsonl", "offset": 0, "data": b"bb"},
    ]
    assert tail.read_spool(str(tmp_path), {"1.jsonl": 4, "2.jsonl": 4}, 5) == []
    assert tail.read_spool(str(tmp_path / "no"), {}, 5) == []
