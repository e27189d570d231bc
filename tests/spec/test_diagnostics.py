"""The text of errors: place, state of every host, folding, and nothing that moves a cursor."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.diagnostics import fold_hosts, render
from orchestrator.errors import (
    FileError,
    FileErrors,
    FleetError,
    HostError,
    OrchestratorError,
    PatchError,
    RevertIncompleteError,
    SessionError,
)
from orchestrator.model.outcome import Outcome
from orchestrator.model.source import Span

SPAN = Span("p.yaml", 12, 7, 12, 10, ("after: x = y",))

TEXTS: list[tuple[OrchestratorError, str]] = [
    (
        FileError("unknown key `a`", span=SPAN, notes=["n"], hints=["do this\nand that"]),
        """
error: unknown key `a`
  --> p.yaml:12:7
   |
12 | after: x = y
   |       ^^^
note: n
hint: do this
      and that
""",
    ),
    (
        FileErrors([FileError("a", span=SPAN), FileError("b", span=Span("q.yaml", 1, 2, 1, 3))]),
        """
error: a
  --> p.yaml:12:7
   |
12 | after: x = y
   |       ^^^

error: b
 --> q.yaml:1:2

2 problems in 2 files
""",
    ),
    (
        FileError(
            "long", span=Span("p.yaml", 8, 3, 13, 4, ("  a", "  b", "  c", "  d", "  e", "f"))
        ),
        """
error: long
  --> p.yaml:8:3
   |
 8 |   a
   |   ^
 9 |   b
10 |   c
11 |   d
   | ...
""",
    ),
    (
        FileError("wide", span=Span("p.yaml", 1, 4, 1, 6, ("a:\t\u6f22\u5b57 b",))),
        """
error: wide
 --> p.yaml:1:4
  |
1 | a:  \u6f22\u5b57 b
  |     ^^^^
""",
    ),
    (
        FileError("cut", span=Span("p.yaml", 1, 301, 1, 304, ("x" * 300 + "abc" + "y" * 300,))),
        f"""
error: cut
 --> p.yaml:1:301
  |
1 | ...{"x" * 40}abc{"y" * 117}...
  | {" " * 43}^^^
""",
    ),
    (
        PatchError(
            "the statement is not there",
            state="not found",
            span=SPAN,
            file="sglang/a.py",
            hosts=["gpu02", "gpu01"],
            notes=["nearest:\nx = z"],
        ),
        """
error: the statement is not there
  --> p.yaml:12:7
   |
12 | after: x = y
   |       ^^^
 ::: sglang/a.py on gpu[01-02]
note: nearest:
      x = z
""",
    ),
    (
        HostError(
            "no Python 3.8 or newer",
            host="gpu03",
            code="no-python",
            tail=["Welcome", "\x1b[31mred\x1b[0m"],
            trace="Traceback:\n  boom",
            hints=["set `python`"],
        ),
        """
error: no Python 3.8 or newer
 --> host gpu03
the last lines from the host:
  | Welcome
  | \\x1b[31mred\\x1b[0m
the failure on the host:
  | Traceback:
  |   boom
hint: set `python`
""",
    ),
    (
        SessionError(
            "the server did not get ready",
            outcomes=[
                Outcome("gpu2", "start", True, "reverted", "restored"),
                Outcome("gpu10", "start", True, "reverted", "restored"),
                Outcome("gpu1", "start", True, "reverted", "restored"),
                Outcome("gpu3", "stage", False, message="disk full", hints=("make room",)),
            ],
        ),
        """
error: the server did not get ready
hint: make room
hosts:
  gpu[1-2,10]: files are as they were, server is as it was
  gpu3: nothing was written, server was not touched; disk full
""",
    ),
    (
        FleetError(
            "`look` failed on gpu[1-3]",
            [
                HostError("no interpreter `/x`", host="gpu1", code="x", hints=["correct it"]),
                HostError("no interpreter `/x`", host="gpu2", code="x", hints=["correct it"]),
                HostError("connection refused", host="gpu3", code="unreachable"),
            ],
        ),
        """
error: no interpreter `/x`
 --> hosts gpu[1-2]
hint: correct it

error: connection refused
 --> host gpu3

error: `look` failed on gpu[1-3]
""",
    ),
    (
        RevertIncompleteError(
            "not every host is as it was",
            outcomes=[Outcome("a", "end", False, "reverted", "not back")],
            remaining=["a: `sgldbg revert --all`"],
            errors=[HostError("the server died", host="a", code="died", tail=["boom"])],
        ),
        """
error: the server died
 --> host a
the last lines from the host:
  | boom

error: not every host is as it was
hosts:
  a: files are as they were, server is not back
left to do:
  a: `sgldbg revert --all`
""",
    ),
    (
        RevertIncompleteError(
            "not everything is as it was",
            outcomes=[Outcome("a", "revert", False, "drifted", "not back", "a.py was edited")],
            remaining=["a: a.py; `sgldbg revert --force`"],
        ),
        """
error: not everything is as it was
hosts:
  a: files were changed by somebody else, server is not back; a.py was edited
left to do:
  a: a.py; `sgldbg revert --force`
""",
    ),
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=lambda x: type(x).__name__)
def test_text(error: OrchestratorError, text: str) -> None:
    """Each class of error has one form, the same everywhere."""
    assert render(error) == text.strip("\n")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["gpu01"], "gpu01"),
        (["b", "a", "b"], "a, b"),
        (["gpu07", *(f"gpu{n:02d}" for n in range(1, 7))], "gpu[01-07]"),
        (["gpu1", "gpu3", "gpu2", "gpu5"], "gpu[1-3,5]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n1", "n01"], "n1, n01"),
        (["10.0.0.1", "10.0.0.2", "10.0.1.1"], "10.0.0.[1-2], 10.0.1.1"),
        (["kimi-0", "kimi-1", "a1.x", "a2.x", "a2.y"], "a[1-2].x, a2.y, kimi-[0-1]"),
    ],
)
def test_fold(names: list[str], text: str) -> None:
    """Hosts that differ in one number are written as a range."""
    assert fold_hosts(names) == text


def unfold(text: str) -> set[str]:
    """The names that a folded text stands for."""
    names = set()
    for part in re.findall(r"(?:\[[^\]]*\]|[^,\[])+", text):
        found = re.fullmatch(r"(.*)\[(.*)\](.*)", part.strip())
        if not found:
            names.add(part.strip())
            continue
        before, ranges, after = found.groups()
        for item in ranges.split(","):
            first, _, last = item.partition("-")
            for number in range(int(first), int(last or first) + 1):
                names.add(f"{before}{number:0{len(first)}d}{after}")
    return names


# A busy machine draws slowly; that is no fault of the names.
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sets(st.from_regex(r"[a-b]{1,2}[0-9]{0,3}(\.[a-b])?", fullmatch=True), max_size=12))
def test_fold_keeps_all(names: set[str]) -> None:
    """Folding names every host and no other."""
    assert unfold(fold_hosts(names)) - {""} == names


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_control_characters(message: str, line: str) -> None:
    """Whatever a host or a file says, nothing in the text moves a cursor or turns its direction."""
    span = Span("p.yaml", 1, 1, 1, 2, (line.replace("\n", " "),))
    text = render(HostError(message, host="h", code="lost", tail=[line])) + render(
        FileError(message, span=span)
    )
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text
    )
