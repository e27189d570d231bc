"""From PyYAML's events to values with places, with limits on depth, aliases and expansion."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from yaml import events as ev

from orchestrator.errors import FileError
from orchestrator.model.source import Span
from orchestrator.spec.document import Document, Place, Scalar, Source, make_number

MAX_DEPTH = 32  # our files need 8; more is a mistake or an attack on recursive code
MAX_ALIASES = 100
MAX_VALUES = 100_000  # after aliases are expanded: a few KB could otherwise become gigabytes
MAX_DIGITS = 40  # more is no number that any of our files needs

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {"": None, "null": None, "true": True, "false": False}
_COMMENT = re.compile(r"[ \t]+#")
_UNSAFE = re.compile("[\x00\ud800-\udfff]")


@dataclass(slots=True)
class _Node:
    """A value as it was written; `items` of a mapping are its keys, their spans and values."""

    span: Span
    value: Any = None
    scalar: Scalar | None = None
    items: list[tuple[str, Span, _Node]] | None = None
    elements: list[_Node] | None = None


@dataclass(slots=True)
class _Maps:
    values: dict[Place, Span] = field(default_factory=dict)
    keys: dict[Place, Span] = field(default_factory=dict)
    scalars: dict[Place, Scalar] = field(default_factory=dict)


class Composer:
    """Takes the events of one file; collects its problems and its document."""

    def __init__(self, source: Source, code_keys: frozenset[str]) -> None:
        self.problems: list[FileError] = []
        self._source = source
        self._code_keys = code_keys
        self._anchors: dict[str, _Node | None] = {}
        self._aliases = 0
        self._nodes = 0
        self._maps = _Maps()
        self._value: Any = None

    def document(self) -> Document:
        """What was read; only after `compose` with no problem."""
        maps = self._maps
        return Document(self._source, self._value, maps.values, maps.keys, maps.scalars)

    def compose(self, loader: Any) -> None:
        """Read the loader's only document; raises `FileError` where going on makes no sense."""
        loader.get_event()
        if loader.check_event(ev.StreamEndEvent):
            raise FileError(f"`{self._source.path}` is empty")
        loader.get_event()
        root = self._node(loader, loader.get_event(), (), 0)
        loader.get_event()
        if not loader.check_event(ev.StreamEndEvent):
            span = self._span(loader.get_event())
            raise FileError("a second document begins here; one file holds one", span=span)
        self._value = self._spread(root, ())

    def _node(self, loader: Any, event: Any, place: Place, depth: int) -> _Node:
        span = self._span(event)
        if isinstance(event, ev.AliasEvent):
            return self._alias(event, span)
        if event.tag is not None:
            hint = "leave it out; quote a text that begins with `!`"
            shown = event.tag.replace("tag:yaml.org,2002:", "!!", 1)
            message = f"tags such as `{_short(shown)}` are not allowed"
            self.problems.append(FileError(message, span=span, hints=[hint]))
        self._nodes += 1
        if self._nodes > MAX_VALUES:
            raise FileError(f"more than {MAX_VALUES:,} values", span=span)
        if depth >= MAX_DEPTH:
            raise FileError(f"nested deeper than {MAX_DEPTH} levels", span=span)
        if event.anchor:
            self._anchors[event.anchor] = None
        if isinstance(event, ev.ScalarEvent):
            node = self._scalar(event, place)
        elif isinstance(event, ev.MappingStartEvent):
            node = self._mapping(loader, span, place, depth)
        else:
            node = self._sequence(loader, span, place, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any, span: Span) -> _Node:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise FileError(f"more than {MAX_ALIASES} aliases", span=span)
        if event.anchor not in self._anchors:
            hint = "define it before with `&`, or quote a text that begins with `*`"
            raise FileError(f"unknown alias `*{event.anchor}`", span=span, hints=[hint])
        node = self._anchors[event.anchor]
        if node is None:
            raise FileError(f"alias `*{event.anchor}` stands inside its own value", span=span)
        return node

    def _sequence(self, loader: Any, span: Span, place: Place, depth: int) -> _Node:
        elements: list[_Node] = []
        while not loader.check_event(ev.SequenceEndEvent):
            where = (*place, len(elements))
            elements.append(self._node(loader, loader.get_event(), where, depth + 1))
        span = self._closed(span, loader.get_event())
        return _Node(span, elements=elements)

    def _mapping(self, loader: Any, span: Span, place: Place, depth: int) -> _Node:
        items: list[tuple[str, Span, _Node]] = []
        first: dict[str, Span] = {}
        while not loader.check_event(ev.MappingEndEvent):
            event = loader.get_event()
            where = self._span(event)
            if not isinstance(event, ev.ScalarEvent):
                raise FileError("a key must be text", span=where)
            key = event.value
            if event.tag is not None or event.anchor is not None:
                self.problems.append(FileError("a key has no tag and no anchor", span=where))
            if key == "<<" and event.implicit[0]:
                hint = "write the keys out, or use `defaults` of the inventory"
                self.problems.append(
                    FileError("merge keys (`<<`) are not supported", span=where, hints=[hint])
                )
            child = self._node(loader, loader.get_event(), (*place, key), depth + 1)
            if key in first:
                note = f"it stands on line {first[key].line} too"
                message = f"key `{_short(key)}` stands twice in one mapping"
                self.problems.append(FileError(message, span=where, notes=[note]))
            else:
                first[key] = where
                items.append((key, where, child))
        span = self._closed(span, loader.get_event())
        return _Node(span, items=items)

    def _scalar(self, event: Any, place: Place) -> _Node:
        span = self._span(event)
        value: Any = _join_surrogates(event.value)
        unsafe = _UNSAFE.search(value)
        if unsafe:
            message = f"character U+{ord(unsafe.group()):04X} is not allowed in a text"
            self.problems.append(FileError(message, span=span))
            value = ""
        if event.style is None:
            self._refuse_cut(event, place)
            value = self._typed(value, span)
        first = event.start_mark.line + (event.style in ("|", ">"))
        written = value if event.style else event.value
        return _Node(span, value, Scalar(span, event.style or "", written, first))

    def _typed(self, text: str, span: Span) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        if not _NUMBER.fullmatch(text):
            return text
        number = make_number(text) if len(text) <= MAX_DIGITS else None
        if number is None or number in (float("inf"), float("-inf")):
            hint = "quote it if it is meant as text"
            self.problems.append(FileError("the number is too large", span=span, hints=[hint]))
            return 0
        return number

    def _refuse_cut(self, event: Any, place: Place) -> None:
        """A plain value of code ends at ` #`, which YAML takes for a comment."""
        parts = [part for part in place if isinstance(part, str)]
        # `=key`: only what stands at the key itself, not what stands below it.
        direct = f"={place[-1]}" if place else ""
        if not self._code_keys.intersection((*parts, direct)):
            return
        rest = self._source.lines[event.end_mark.line][event.end_mark.column :]
        found = _COMMENT.match(rest)
        if not found:
            return
        line, column = event.end_mark.line, event.end_mark.column
        problem = FileError(
            "the code is cut short: YAML takes ` #` for the start of a comment",
            span=self._source.span((line, column + found.end() - 1), (line, column + len(rest))),
            notes=[f"what is left is `{_short(event.value)}`"],
            hints=["quote the whole value, or move the comment to a line of its own"],
        )
        self.problems.append(problem)

    def _spread(self, node: _Node, place: Place) -> Any:
        """The plain value, aliases expanded, every place noted."""
        maps = self._maps
        if len(maps.values) >= MAX_VALUES:
            raise FileError(f"more than {MAX_VALUES:,} values", span=node.span)
        maps.values[place] = node.span
        if node.items is not None:
            result = {}
            for key, span, child in node.items:
                maps.keys[(*place, key)] = span
                result[key] = self._spread(child, (*place, key))
            return result
        if node.elements is not None:
            return [self._spread(child, (*place, i)) for i, child in enumerate(node.elements)]
        if node.scalar:
            maps.scalars[place] = node.scalar
        return node.value

    def _span(self, event: Any) -> Span:
        """The event's place: a text's own, of a mapping or list the first line."""
        start, end = event.start_mark, event.end_mark
        here = (start.line, start.column)
        if isinstance(event, ev.CollectionStartEvent):
            return self._source.span(here, (start.line, 1 << 30))
        if isinstance(event, ev.ScalarEvent) and event.style in ("|", ">") and event.value.strip():
            return self._block_span(start.line + 1, end.line)
        return self._source.span(here, (end.line, end.column))

    def _closed(self, span: Span, event: Any) -> Span:
        """The place of a list or mapping whose end is known: up to its bracket on that line."""
        end = event.end_mark
        if end.line != span.line - 1:
            return span
        return self._source.span((end.line, span.column - 1), (end.line, end.column))

    def _block_span(self, first: int, end: int) -> Span:
        """A block text's lines without its header and the blank lines around it."""
        lines = self._source.lines
        indent, filled = 0, list[int]()
        for number in range(first, min(end + 1, len(lines))):
            if not lines[number].strip(" "):
                continue
            own = len(lines[number]) - len(lines[number].lstrip(" "))
            indent = indent if filled else own
            if own < indent:
                break
            filled.append(number)
        return self._source.span((filled[0], indent), (filled[-1], 1 << 30))


def _join_surrogates(text: str) -> str:
    """JSON writes one character beyond U+FFFF as two escapes, which YAML leaves apart."""
    if not _UNSAFE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
