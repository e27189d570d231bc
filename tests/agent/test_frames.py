"""Frames survive however they are cut, and nothing that is not a frame is taken for one."""

from __future__ import annotations

import json
import os
import struct
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agent import frames as near
from orchestrator.onhost.agent.wire import frames as far

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
HEADERS = st.dictionaries(st.text(max_size=8).filter(lambda key: key != "bytes"), JSON)


def test_both_ends_agree() -> None:
    """The host's copy of the format is the controller's."""
    assert (near.HEADER_LIMIT, near.RAW_LIMIT) == (far.HEADER_LIMIT, far.RAW_LIMIT)
    header = {"id": 7, "text": "é\udce9\u2028", "list": [1, None, True, 1.5]}
    assert near.encode(header, b"\x00\xff") == far.encode(header, b"\x00\xff")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(HEADERS, st.binary(max_size=50)), max_size=5), st.data())
def test_decoder_takes_any_cut(messages: list[tuple[dict[str, Any], bytes]], data: Any) -> None:
    """Frames come out whole and in order, wherever the stream was cut."""
    stream = b"".join(far.encode(header, raw) for header, raw in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder, got = near.Decoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += list(decoder.feed(stream[start:end]))
    want = [({**h, "bytes": len(raw)} if raw else h, raw) for h, raw in messages]
    assert got == want
    assert not decoder.is_inside_frame


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_decoder_refuses_noise_without_crashing(noise: bytes) -> None:
    """Arbitrary bytes give frames or `BrokenFrame`, nothing else."""
    try:
        for header, raw in near.Decoder().feed(noise):
            assert isinstance(header, dict)
            assert header.get("bytes", 0) == len(raw)
    except near.BrokenFrame:
        pass


def make_frame(text: bytes, length: int | None = None) -> bytes:
    return struct.pack(">I", len(text) if length is None else length) + text


BROKEN = [
    (make_frame(b"", 0), "a header of 0 bytes, the limit is 1048576"),
    (make_frame(b"", 1 << 31), "a header of 2147483648 bytes, the limit is 1048576"),
    (make_frame(b"[1]"), "a header that is no JSON object"),
    (make_frame(b'{"bytes": -1}'), "`bytes` is -1, the limit is 67108864"),
    (make_frame(b'{"bytes": true}'), "`bytes` is True, the limit is 67108864"),
    (make_frame(b'{"bytes": 67108865}'), "`bytes` is 67108865, the limit is 67108864"),
    (make_frame(b'{"bytes": "1"}'), "`bytes` is '1', the limit is 67108864"),
    (
        make_frame(b"{]"),
        "a header that is not JSON: Expecting property name enclosed in double quotes:"
        " line 1 column 2 (char 1)",
    ),
]


@pytest.mark.parametrize(("data", "message"), BROKEN)
def test_broken_frames_are_named(data: bytes, message: str) -> None:
    """Both ends refuse the same bytes in the same words."""
    with pytest.raises(near.BrokenFrame) as caught:
        list(near.Decoder().feed(data))
    assert str(caught.value) == message
    reading, writing = os.pipe()
    try:
        os.write(writing, data)
        with pytest.raises(far.BrokenFrame) as refused:
            far.Reader(reading).read()
        assert str(refused.value) == message
    finally:
        os.close(reading)
        os.close(writing)


def test_deeply_nested_header_is_refused() -> None:
    """JSON that would exhaust the stack is a broken frame, not a crash."""
    with pytest.raises(near.BrokenFrame):
        list(near.Decoder().feed(make_frame(b"[" * 500_000)))


def test_end_inside_a_frame_is_an_error() -> None:
    """A stream that ends between frames has ended; inside one it is broken."""
    reading, writing = os.pipe()
    os.write(writing, far.encode({"id": 1}) + far.encode({"id": 2}, b"abc")[:-1])
    os.close(writing)
    reader = far.Reader(reading)
    assert reader.read() == ({"id": 1}, b"")
    with pytest.raises(far.BrokenFrame, match="the stream ended inside a frame"):
        reader.read()
    os.close(reading)


def test_limits_are_checked_before_anything_is_sent() -> None:
    """What the other end would refuse is refused here."""
    with pytest.raises(ValueError, match="67108865 raw bytes, the limit is 67108864"):
        near.encode({}, bytes(near.RAW_LIMIT + 1))
    with pytest.raises(far.FrameTooLarge, match="a header of 1048587 bytes"):
        far.encode({"text": "x" * near.HEADER_LIMIT})


def read_frames(fd: int, until_id: int) -> list[dict[str, Any]]:
    """Read headers until that of a reply."""
    reader, headers = far.Reader(fd), []
    while not headers or headers[-1].get("id") != until_id:
        frame = reader.read()
        assert frame is not None
        headers.append(frame[0])
    return headers


def end_writer(writer: far.Writer, reading: int, writing: int) -> None:
    """Let its thread end before the descriptor's number can come to mean another file."""
    os.close(reading)
    while True:
        try:
            writer.log({"event": "log"})
        except BrokenPipeError:
            break
    os.close(writing)


def test_replies_overtake_log_frames() -> None:
    """A reply waits for the frame that is being written, not for the backlog behind it."""
    reading, writing = os.pipe()
    writer = far.Writer(writing)
    for number in range(15):
        writer.log({"event": "log", "n": number}, bytes(far.LOG_RAW_LIMIT))
    writer.reply({"id": 1, "ok": True})
    headers = read_frames(reading, until_id=1)
    # One frame of 64 KiB fits into the pipe, one is being written.
    assert len(headers) <= 3
    assert json.dumps(headers[:-1]).count("log") == len(headers) - 1
    end_writer(writer, reading, writing)


def test_log_holds_its_caller_back() -> None:
    """At most about 1 MiB of log frames wait in memory; then the follower waits."""
    reading, writing = os.pipe()
    writer, sent, done = far.Writer(writing), [], threading.Event()

    def follow() -> None:
        for number in range(40):
            writer.log({"event": "log"}, bytes(far.LOG_RAW_LIMIT))
            sent.append(number)
        writer.reply({"id": 9})
        done.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert not done.wait(0.3)
    assert len(sent) <= 20
    reader = far.Reader(reading)
    frames = [reader.read() for _ in range(41)]
    assert [frame[0].get("id") for frame in frames if frame and "id" in frame[0]] == [9]
    thread.join(30)
    end_writer(writer, reading, writing)


def test_log_frames_are_small() -> None:
    """A log frame that would keep replies waiting is refused."""
    reading, writing = os.pipe()
    writer = far.Writer(writing)
    with pytest.raises(far.FrameTooLarge):
        writer.log({"event": "log"}, bytes(far.LOG_RAW_LIMIT + 1))
    end_writer(writer, reading, writing)


def test_writer_tells_when_nobody_reads() -> None:
    """A follower ends by an exception, a reply is dropped, and the owner is told once."""
    reading, writing = os.pipe()
    broken = threading.Event()
    writer = far.Writer(writing, broken.set)
    os.close(reading)
    writer.reply({"id": 1})
    assert broken.wait(30)
    writer.reply({"id": 2})
    with pytest.raises(BrokenPipeError):
        writer.log({"event": "log"}, b"x")
    assert writer.flush(30)
    os.close(writing)
