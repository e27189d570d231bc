"""Records are found in any bytes, however cut, glued, torn or doubled."""

from __future__ import annotations

import binascii
import itertools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.logs.records import RecordReader, cut_records, merge
from orchestrator.model.record import Record


def make_line(text: str) -> bytes:
    """A line as a probe writes it."""
    data = text.encode()
    return b"@sgldbg1 %d %s %08x\n" % (len(data), data, binascii.crc32(data))


def make_raw(seq: int = 1, **changes: object) -> dict[str, object]:
    """A record as JSON."""
    return {
        "s": "S",
        "k": "hit",
        "p": "eagle3-draft-input.1",
        "h": "elsewhere",
        "pid": 7,
        "title": "sglang::scheduler_TP0",
        "ranks": {"tp": 0},
        "n": seq,
        "ph": "armed",
        "g": 2,
        "m": 1.5 + seq,
        "w": 1000.0 + seq,
        "v": {"x": "@sgldbg1 9 mark inside a value"},
        **changes,
    }


def make_record_line(seq: int = 1, **changes: object) -> bytes:
    """A whole record line."""
    return make_line(json.dumps(make_raw(seq, **changes)))


def make_parts(seq: int, size: int = 900) -> list[bytes]:
    """The same in parts."""
    text = json.dumps(make_raw(seq, v={"x": "long" * 600}))
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    count = len(pieces)
    return [
        make_line(json.dumps({"part": [i, count], "id": f"7.p.{seq}", "text": piece}))
        for i, piece in enumerate(pieces, 1)
    ]


def read(data: bytes, cuts: list[int] | None = None) -> tuple[list[Record], int]:
    """Feed the bytes in pieces; all records and the number of damaged ones."""
    reader = RecordReader("gpu01")
    points = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts or ())})
    found = []
    for start, end in itertools.pairwise(points):
        found += reader.feed(data[start:end])
    return found + reader.finish(), reader.damaged


NOISE = [
    b"[2026-11-29 15:43:23 TP0] text\n",
    b"\r 33%|xx  | 1/3 [00:01<00:02,  3.3it/s]",
    b"@sgldbg1 ",
    b"@sgldbg1 12 {} 00000000\n",
    b"@sgl",
    b"\x00\xff\xfe\n",
    b"@sgldbg1 99999 {\n",
    b"(RayWorkerWrapper pid=2001) ",
    b"\n",
]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_chunking_gives_the_same_records(data: st.DataObject) -> None:
    """Where the stream is cut changes nothing: neither the records nor the damage."""
    lines = [make_record_line(1), make_record_line(2, v={}), *make_parts(3)]
    torn = data.draw(st.integers(1, len(lines[0]) - 2))
    pieces = [*lines, lines[0][:torn], *NOISE]
    chosen = data.draw(st.lists(st.sampled_from(pieces), max_size=12))
    stream = b"".join(chosen)
    cuts = data.draw(st.lists(st.integers(0, 20000), max_size=8))
    assert read(stream, cuts) == read(stream)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(0, 2000), max_size=6))
def test_no_bytes_break_the_reader(noise: bytes, cuts: list[int]) -> None:
    """Garbage costs nothing but itself: the record behind the next newline is found."""
    line = make_record_line(5)
    records, _ = read(noise + b"\n" + line, cuts)
    assert [r.seq for r in records if r.site == "eagle3-draft-input.1"] == [5]
    assert read(b"@sgldbg1 " + noise, cuts) == read(b"@sgldbg1 " + noise)


def test_every_byte_flipped_is_noticed() -> None:
    """A changed byte is never read as a record, and never passed over in silence."""
    line = make_record_line(1)
    mark = len(b"@sgldbg1 ")
    for at in range(mark, len(line) - 1):
        torn = line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]
        records, damaged = read(torn)
        assert (records, damaged > 0) == ([], True)


def test_a_record_is_found_in_the_middle_of_a_line() -> None:
    """Behind a progress bar or Ray's prefix, before a suffix, twice in one line."""
    line = make_record_line(1)[:-1]
    other = make_record_line(2)[:-1]
    glued = b"\rbar 1/3 [00:00<00:00, 3it/s]" + line + b" [repeated 7x across cluster]\n"
    records, damaged = read(glued + b"(Ray pid=1) " + line + other + b"\r\n" + other)
    assert ([r.seq for r in records], damaged) == ([1, 1, 2, 2], 0)
    assert cut_records(glued) == (b"\rbar 1/3 [00:00<00:00, 3it/s] [repeated 7x across cluster]\n")


def test_all_fields_arrive() -> None:
    """The host is the one that was read, since hosts may share the file that names it."""
    raw = make_raw(
        3,
        key=["ForwardMode.EXTEND", 192],
        e={"fc": "AttributeError: no fc"},
        x={"fused": True, "other": None},
        req=["r1"],
        note="n",
    )
    (record,), _ = read(make_line(json.dumps(raw)))
    assert record == Record(
        session="S",
        kind="hit",
        site="eagle3-draft-input.1",
        host="gpu01",
        pid=7,
        title="sglang::scheduler_TP0",
        seq=3,
        phase="armed",
        mono_s=4.5,
        wall_s=1003.0,
        ranks={"tp": 0},
        values={"x": "@sgldbg1 9 mark inside a value"},
        keys=("ForwardMode.EXTEND", 192),
        errors={"fc": "AttributeError: no fc"},
        expect={"fused": True, "other": None},
        requests=("r1",),
        note="n",
        generation=2,
    )
    assert record.patch == "eagle3-draft-input"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "7",
        '"text"',
        "{",
        json.dumps(make_raw(k="other")),
        json.dumps(make_raw(pid="x")),
        json.dumps(make_raw(x=[1])),
        json.dumps({"part": [3, 2], "id": "a", "text": "x"}),
        json.dumps({"part": [1, 999], "id": "a", "text": "x"}),
        json.dumps({"part": [1, 1], "id": "a", "text": "{"}),
        json.dumps({"part": 1, "id": "a", "text": "x"}),
        "[" * 2000 + "]" * 2000,
    ],
)
def test_what_verifies_and_is_no_record_is_damage(text: str) -> None:
    """A checksum says that bytes arrived, not that they mean something."""
    assert read(make_line(text)) == ([], 1)


def test_parts_join_in_any_order_and_between_others() -> None:
    """Several workers write their parts at once; a part that never comes is damage."""
    first, second = make_parts(1), make_parts(2)
    lines = [*first, *second, make_record_line(3)]
    random.Random(0).shuffle(lines)
    records, damaged = read(b"".join(lines))
    assert (sorted(r.seq for r in records), damaged) == ([1, 2, 3], 0)
    assert read(b"".join(first[:-1])) == ([], 1)


def test_open_parts_are_bounded() -> None:
    """A process that dies between parts, again and again, does not fill the controller."""
    reader = RecordReader("gpu01")
    for n in range(1000):
        text = json.dumps({"part": [1, 2], "id": f"x{n}", "text": "t"})
        assert reader.feed(make_line(text)) == []
    assert reader.damaged == 1000 - 256
    assert reader.finish() == []
    assert reader.damaged == 1000


def test_a_stream_without_newlines_is_not_kept() -> None:
    """A bar that redraws itself for hours costs no memory."""
    reader = RecordReader("gpu01")
    for _ in range(100):
        reader.feed(b"\r 33% " * 10000)
    assert len(reader._data) < 64


def test_older_sessions_are_passed_over() -> None:
    """An appended log holds an older life's lines; they are neither records nor damage."""
    reader = RecordReader("gpu01", session="S")
    records = reader.feed(make_record_line(1, s="older") + make_record_line(2))
    assert ([r.seq for r in records], reader.damaged) == ([2], 0)


def test_copies_are_merged_and_others_are_not() -> None:
    """Stderr and spool hold the same records; equal numbers of two pids are two records."""
    lines = [make_record_line(n, pid=pid) for n in (1, 2, 3) for pid in (7, 8)]
    stderr, _ = read(b"".join(lines[:4]))
    spool, _ = read(b"".join(lines[2:]))
    reused, _ = read(make_record_line(1, m=99.0, w=2000.0))
    merged = merge(stderr, spool, reused)
    assert [(r.pid, r.seq) for r in merged] == [
        (7, 1),
        (8, 1),
        (7, 2),
        (8, 2),
        (7, 3),
        (8, 3),
        (7, 1),
    ]
