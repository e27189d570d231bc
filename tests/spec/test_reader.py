"""What the reader makes of YAML, and that no text makes it fail in any other way than it says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.diagnostics import render
from orchestrator.errors import FileErrors
from orchestrator.spec.document import as_plain
from orchestrator.spec.reader import MAX_SIZE_BYTES, parse_document, read_document


def read(text: str) -> Any:
    """The plain value of a text."""
    return as_plain(parse_document(text.encode(), "t.yaml").value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("", None),
        ("0", 0),
        ("-12", -12),
        ("1.50", 1.5),
        ("2e3", 2000.0),
        ('"true"', "true"),
        ("'12'", "12"),
        *((word, word) for word in ("yes", "no", "on", "off", "True", "NULL", "~", "Null")),
        *((word, word) for word in ("007", "0x1F", "0o17", "1_000", "+1", ".5", "1.", ".inf")),
        *((word, word) for word in ("12:30", "2024-01-31", "1.2.3", "=", "-", "--x", ".nan")),
    ],
)
def test_types(text: str, value: object) -> None:
    """Only true, false, null and the numbers of JSON are typed; everything else is text."""
    found = read(f"key: {text}\n")["key"] if text != "-" else read("key: '-'\n")["key"]
    assert found == value
    assert type(found) is type(value)


def test_keys_are_text() -> None:
    """A key is what was written, whatever it looks like."""
    assert read("1: a\ntrue: b\nnull: c\n1.50: d\n") == {
        "1": "a",
        "true": "b",
        "null": "c",
        "1.50": "d",
    }


def test_spans() -> None:
    """Every key and value has its place; a list or mapping that of its first line."""
    document = parse_document(b"a:\n  - x: 'y z'\n    q: 1\nb: |\n  one\n  two\n", "t.yaml")

    def shown(span: Any) -> str:
        return f"{span.line}:{span.column}-{span.end_line}:{span.end_column}"

    assert {key: shown(span) for key, span in document.dotted().items()} == {
        "a": "2:3-2:13",
        "a.0": "2:5-2:13",
        "a.0.x": "2:8-2:13",
        "a.0.q": "3:8-3:9",
        "b": "5:3-6:6",
    }
    assert shown(document.keys["a", 0, "q"]) == "3:5-3:6"
    assert document.values["b",].lines == ("  one", "  two")


@pytest.mark.parametrize(
    ("text", "line", "column", "place"),
    [
        ("k: abcd\n", 0, 2, "1:6"),
        ("k: 'a''bcd'\n", 0, 2, "1:8"),
        ('k: "a\\u0041\\"cd"\n', 0, 3, "1:14"),
        ("k: |\n  ab\n   cd\n", 1, 1, "3:4"),
        ("k: |\n\n  ab\n", 1, 1, "3:4"),
        ("k: >\n  ab\n  cd\n", 0, 4, "2:3"),  # folded: the whole value
        ("k: ab\n  cd\n", 0, 4, "1:4"),
    ],
)
def test_code_span(text: str, line: int, column: int, place: str) -> None:
    """A character of a value is found in what was written, where the way of writing allows it."""
    span = parse_document(text.encode(), "t.yaml").code_span(("k",), line, column)
    assert f"{span.line}:{span.column}" == place


def test_aliases_are_expanded_apart() -> None:
    """An alias stands for a value of its own, with the place of what it names."""
    document = parse_document(b"a: &x {n: [1]}\nb: *x\n", "t.yaml")
    assert as_plain(document.value) == {"a": {"n": [1]}, "b": {"n": [1]}}
    assert document.value["a"] is not document.value["b"]
    assert document.values["b", "n", 0] == document.values["a", "n", 0]


def test_alias_limit() -> None:
    """More aliases than any honest file has are refused."""
    text = "a: &x 1\nb: [" + ", ".join(["*x"] * 101) + "]\n"
    with pytest.raises(FileErrors) as caught:
        read(text)
    assert [problem.message for problem in caught.value.problems] == ["more than 100 aliases"]


def test_byte_order_mark_and_line_ends() -> None:
    """Files of other systems are read, and places still agree with an editor's."""
    document = parse_document(b"\xef\xbb\xbfa: 1\r\nb: x\r\n", "t.yaml")
    assert document.value == {"a": 1, "b": "x"}
    assert (document.keys["b",].line, document.keys["b",].column) == (2, 1)
    assert document.keys["b",].lines == ("b: x",)


def test_size_limit(tmp_path: Path) -> None:
    """A file that is too large is refused before it is parsed."""
    path = tmp_path / "big.yaml"
    path.write_bytes(b"a: " + b"x" * MAX_SIZE_BYTES)
    with pytest.raises(FileErrors) as caught:
        read_document(path)
    assert render(caught.value) == (
        f"error: cannot read `{path}`: it is larger than 1 MiB\n\n1 problem"
    )


@pytest.mark.parametrize(
    ("name", "reason"), [("missing.yaml", "no such file or directory"), (".", "is a directory")]
)
def test_unreadable(name: str, reason: str, tmp_path: Path) -> None:
    """A file that cannot be opened is a problem like any other."""
    with pytest.raises(FileErrors) as caught:
        read_document(tmp_path / name)
    assert render(caught.value) == f"error: cannot read `{tmp_path / name}`: {reason}\n\n1 problem"


_BLOCKS = ["a", "b: ", ": ", "- ", "? ", "|", ">-", "\n", "\n  ", "<<: ", "#", " #c", "\t", "\r"]
_FLOWS = ["[", "]", "{", "}", ",", "'", '"', "\\", "\\U", "1e9", "0", "null", "\u00e9"]
_RARE = ["&x ", "*x", "!!t ", "%YAML 1.1\n", "---\n", "...\n", "\x00", "\x85", "\u2028", "\ufeff"]
_PIECES = st.sampled_from([*_BLOCKS, *_FLOWS, *_RARE])


def problems_of(data: bytes) -> FileErrors | None:
    """What is wrong with these bytes."""
    try:
        parse_document(data, "t.yaml", frozenset({"a"}))
    except FileErrors as errors:
        return errors
    return None


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=25).map("".join)))
def test_any_text(text: str) -> None:
    """Any text is read, or refused with problems that point into it and can be shown."""
    errors = problems_of(text.encode("utf-8", "surrogatepass"))
    for problem in errors.problems if errors else ():
        span = problem.span
        if span is not None:
            assert span.lines
            assert 1 <= span.line <= span.end_line
            assert 1 <= span.column <= len(span.lines[0]) + 1
    assert errors is None or "\x1b" not in render(errors)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are read or refused with problems."""
    errors = problems_of(data)
    assert errors is None or errors.problems


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not math.isinf(x))
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(_JSON)
def test_json_is_read_as_json(value: object) -> None:
    """A text that is JSON means here what it means there."""
    assert read(json.dumps({"k": value}))["k"] == value
