"""A YAML file as plain values, with the place of every key, value and character of code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.model.source import Span

Place = tuple[str | int, ...]

# What YAML counts as the end of a line; `str.splitlines` knows more of them.
LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")

_ESCAPE = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|.",
    re.DOTALL,
)


class Int(int):
    """A whole number that remembers how it was written."""

    text: str


class Float(float):
    """A number with a fraction or exponent that remembers how it was written."""

    text: str


def make_number(text: str) -> Int | Float:
    """The number that `text`, a JSON number, stands for."""
    number: Int | Float = Float(text) if re.search("[.eE]", text) else Int(text)
    number.text = text
    return number


def as_plain(value: Any) -> Any:
    """The same value without memory of its spelling, as `json` would have read it."""
    match value:
        case Int():
            return int(value)
        case Float():
            return float(value)
        case dict():
            return {key: as_plain(item) for key, item in value.items()}
        case list():
            return [as_plain(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one file, by lines without their ends."""

    path: str
    lines: tuple[str, ...]

    def span(self, start: tuple[int, int], end: tuple[int, int]) -> Span:
        """The place between two positions, each a line and a column that count from 0."""
        last = max(len(self.lines) - 1, 0)
        line = min(start[0], last)
        end_line = min(max(end[0], line), last)
        text = self.lines[line : end_line + 1] or ("",)
        column = min(start[1], len(text[0]))
        end_column = min(end[1], len(text[-1])) if end[0] <= last else len(text[-1])
        if end_line == line:
            end_column = max(end_column, column)
        return Span(self.path, line + 1, column + 1, end_line + 1, end_column + 1, text)


@dataclass(frozen=True, slots=True)
class Scalar:
    """How one value was written: `style` is empty for a plain one, else `'`, `"`, `|` or `>`.

    `first` counts from 0 and is the line on which the first line of `value` stands.
    """

    span: Span
    style: str
    value: str
    first: int

    def is_null(self) -> bool:
        """Whether nothing, or the word for it, was written."""
        return not self.style and self.value in ("", "null")


@dataclass(frozen=True, slots=True)
class Document:
    """One file: its value and, by place (the keys and indexes that lead there), where it stands.

    A mapping or list has the span of its first line.
    """

    source: Source
    value: Any
    values: Mapping[Place, Span]
    keys: Mapping[Place, Span]
    scalars: Mapping[Place, Scalar]

    @property
    def path(self) -> str:
        """The file, as messages name it."""
        return self.source.path

    def key_span(self, place: Place) -> Span:
        """Where the key stands that leads to this place; of an item of a list, the item."""
        while place and place not in self.keys and place not in self.values:
            place = place[:-1]
        return self.keys.get(place) or self.values[place]

    def value_span(self, place: Place) -> Span:
        """Where the value stands, or the nearest thing around it that exists."""
        while place and place not in self.values:
            place = place[:-1]
        return self.values[place]

    def dotted(self) -> dict[str, Span]:
        """Spans of all values by dotted place, such as `patches.0`."""
        return {".".join(map(str, place)): span for place, span in self.values.items() if place}

    def code_span(self, place: Place, line: int, column: int, length: int = 1) -> Span:
        """The place of a character inside a text value.

        `line` and `column` count from 0 in the value as YAML gives it. Where the way it was
        written leaves no such place (folded lines), the span of the whole value.
        """
        scalar = self.scalars.get(place)
        if scalar is None:
            return self.value_span(place)
        found = _position(self.source, scalar, line, column)
        if found is None:
            return scalar.span
        return self.source.span(found, (found[0], found[1] + length))


def _position(source: Source, scalar: Scalar, line: int, column: int) -> tuple[int, int] | None:
    span = scalar.span
    if scalar.style == "|":
        number = scalar.first + line
        written = source.lines[number : number + 1]
        wanted = scalar.value.split("\n")[line : line + 1]
        if not written or not wanted or not written[0].endswith(wanted[0]):
            return None
        return number, len(written[0]) - len(wanted[0]) + column
    if line or span.line != span.end_line or scalar.style == ">":
        return None
    raw = span.lines[0][span.column - 1 : span.end_column - 1]
    offsets = _offsets(raw, scalar.style)
    if len(offsets) != len(scalar.value) + 1 or column > len(scalar.value):
        return None
    return span.line - 1, span.column - 1 + offsets[column]


def _offsets(raw: str, style: str) -> list[int]:
    """Where each character of the value stands in what was written, and where the value ends."""
    if style == "":
        return list(range(len(raw) + 1))
    inner = raw[1:-1]
    pattern = re.compile("''|.") if style == "'" else _ESCAPE
    starts = [match.start() + 1 for match in pattern.finditer(inner)]
    return [*starts, len(inner) + 1]
