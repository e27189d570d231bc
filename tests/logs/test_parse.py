"""Which worker wrote a line, and what of it may be shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.logs.parse import (
    Line,
    LineReader,
    clean,
    is_scheduler,
    label_of_title,
    parse_line,
)
from tests.logs.test_records import make_record_line


@pytest.mark.parametrize(
    ("title", "label"),
    [
        ("sglang::scheduler_TP0", "TP0"),
        ("sglang::scheduler_DP0_TP3_EP3\0\0\0", "DP0 TP3 EP3"),
        ("sglang::scheduler_DP1_PP0_ATTN_CP2_MOE_DP3_TP4_EP5", "DP1 PP0 ATTN_CP2 MOE_DP3 TP4 EP5"),
        ("sglang::scheduler", "scheduler"),
        ("sgl_diffusion::scheduler_3", "scheduler_3"),
        ("sgl_diffusion::scheduler_T0_U1_R2", "T0 U1 R2"),
        ("ray::SchedulerActor.event_loop", ""),
        ("sglang::detokenizer", "detokenizer"),
        ("sglang::data_parallel_controller", "data_parallel_controller"),
        ("sglang::tokenizer_worker:123", "tokenizer_worker:123"),
        ("sglang::http_server/tokenizer_manager", "http_server/tokenizer_manager"),
        ("python\0-m\0sglang.launch_server\0--tp\0002", "main"),
        ("/usr/bin/python /usr/bin/sglang serve --model-path x", "main"),
        ("python -c from multiprocessing.spawn import spawn_main; spawn_main()", ""),
        ("python -c from multiprocessing.resource_tracker import main;main(6)", ""),
        ("", ""),
    ],
)
def test_a_title_names_its_worker(title: str, label: str) -> None:
    """The titles of all releases; a command line is the main process or nobody."""
    assert label_of_title(title) == label


def test_schedulers_are_told_from_other_workers() -> None:
    """Those are the processes that run the model."""
    labels = ["TP0", "DP0 TP3 EP3", "scheduler", "scheduler_3", "T0 U1"]
    labels += ["detokenizer", "main", "", "pid 7"]
    assert [is_scheduler(label) for label in labels] == [True] * 5 + [False] * 4


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[2026-11-29 15:43:23 TP0] Prefill batch.",
            Line("TP0", "Prefill batch.", "2026-11-29 15:43:23"),
        ),
        ("[2026-11-29 15:43:23] ready", Line("", "ready", "2026-11-29 15:43:23")),
        (
            "[2026-11-29 15:43:23.123 DP0 TP1 EP1]   indented",
            Line("DP0 TP1 EP1", "  indented", "2026-11-29 15:43:23.123"),
        ),
        (
            "[2026-11-29 15:43:23 TP1 DP0 ATTN_CP0] x",
            Line("TP1 DP0 ATTN_CP0", "x", "2026-11-29 15:43:23"),
        ),
        ("[2026-11-29 15:43:23 TP0]", Line("TP0", "", "2026-11-29 15:43:23")),
        ("plain print from TP0", Line("", "plain print from TP0")),
        ("[2026-11-29 15:43:23 tp0] x", Line("", "[2026-11-29 15:43:23 tp0] x")),
    ],
)
def test_prefixes(text: str, line: Line) -> None:
    """Any order of labels, with milliseconds or without; an unlabelled line stays unlabelled."""
    assert parse_line(text) == line


def read(data: bytes, size: int = 0) -> list[Line]:
    """All lines of the bytes, fed in pieces of this size."""
    reader = LineReader()
    pieces = [data[i : i + size] for i in range(0, len(data), size)] if size else [data]
    return [line for piece in pieces for line in reader.feed(piece)] + reader.finish()


BARS = (
    b"[2025-08-02 09:14:30] Load begin.\n"
    b"\rshards:   0% Completed | 0/2 [00:00<?, ?it/s]"
    b"\rshards: 100% Completed | 2/2 [00:01<00:00,  1.98it/s]\n\n"
    b"\r  0%|          | 0/3 [00:00<?, ?it/s]"
    b"\rbatches:   0%|          | 0/3 [00:00<?, ?it/s]2025-08-02 09:14:39,120 - INFO - jit: one\n"
    b"\rbatches:  33%|" + "███▎".encode() + b"      | 1/3 [00:00<00:00,  3.3it/s]"
)


def test_a_bar_keeps_its_last_frame_and_gives_back_what_was_glued_to_it() -> None:
    """A message behind a bar is a line of its own, and no text begins with a bar."""
    data = BARS + make_record_line(1) + b"[2025-08-02 09:14:41] end.\r\n[2025-08-02 09:14:41] up"
    texts = [(line.text, line.is_bar) for line in read(data)]
    assert texts == [
        ("Load begin.", False),
        ("shards: 100% Completed | 2/2 [00:01<00:00,  1.98it/s]", True),
        ("batches:   0%|          | 0/3 [00:00<?, ?it/s]", True),
        ("2025-08-02 09:14:39,120 - INFO - jit: one", False),
        ("batches:  33%|███▎      | 1/3 [00:00<00:00,  3.3it/s]", True),
        ("end.", False),
        ("up", False),
    ]


def test_a_message_behind_an_earlier_frame_is_not_lost() -> None:
    """Only frames overwrite one another; a message that they ran over is still a message."""
    data = b"\ra 1/3 [00:00<00:00, 3it/s]Warning: low\ra 2/3 [00:00<00:00, 3it/s]\n"
    assert [line.text for line in read(data)] == ["a 2/3 [00:00<00:00, 3it/s]", "Warning: low"]


def test_a_prefix_in_the_middle_begins_a_line() -> None:
    """Two workers' writes on one line; a date inside a text does not."""
    data = b"DBG one[2026-11-29 15:43:23 TP1] two\nsince [2026-11-29 15:43:23] it runs\n"
    assert read(data) == [
        Line("", "DBG one"),
        Line("TP1", "two", "2026-11-29 15:43:23"),
        Line("", "since [2026-11-29 15:43:23] it runs"),
    ]


ESCAPES = (
    b"\x1b[1;36m(APIServer pid=31)\x1b[0;0m INFO\n"
    b"\x1b[32m2025-08-02\x1b[0m | \x1b[1mINFO    \x1b[0m\n"
    b"plain \x1b]0;window title\x07text\n"
    b"a \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n"
    b"\x1b[?25l\x1b[2K\rbar 1/2\x1b[2K\rbar 2/2\x1b[?25h\n"
    b"a literal ESC[31m in text stays\n"
    b"\x1b[38;5;208morange\x1b[0m \x1b[38;2;1;2;3mrgb\x1b[m\n"
    b"tab\there\x08\x00\x7f\xc2\x9b31mred \xe2\x80\xaeodd\n"
    b"\x1bPdevice control\x1b\\after\n"
    b"not utf-8: \xff\n"
    b"cut in the middle \x1b[3"
)
SHOWN = [
    "(APIServer pid=31) INFO",
    "2025-08-02 | INFO    ",
    "plain text",
    "a link",
    "bar 2/2",
    "a literal ESC[31m in text stays",
    "orange rgb",
    "tab\therered odd",
    "after",
    "not utf-8: \ufffd",
    "cut in the middle ",
]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 64])
def test_no_escape_sequence_is_shown_however_the_bytes_are_cut(size: int) -> None:
    """A title sequence in a log must not act on the user's terminal."""
    assert [line.text for line in read(ESCAPES, size)] == SHOWN


@given(st.text(max_size=200))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    """Whatever a host prints."""
    shown = clean(text)
    assert not any((ord(c) < 32 and c not in "\t\n") or 0x7F <= ord(c) <= 0x9F for c in shown)


def test_a_line_without_end_is_bounded() -> None:
    """A bar that never ends its line costs at most a megabyte."""
    reader = LineReader()
    for _ in range(40):
        assert reader.feed(b"\rbar" * 20000) == []
    assert [line.text for line in reader.finish()] == ["bar"]
