"""Takes our own statements out of a file by their structure, with no journal to go by."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from orchestrator.patching.making.splice import final_line, merged
from orchestrator.patching.making.taps import NAMES
from orchestrator.patching.source import Source, generate, read_source
from orchestrator.patching.structure.match import match
from orchestrator.patching.structure.pattern import Pattern, parse_pattern
from orchestrator.patching.structure.walk import Statement, walk_block


@dataclass(frozen=True, slots=True)
class Removed:
    """A file without our statements, and the sites that stood in it, the import being `""`."""

    data: bytes
    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ours:
    """One statement of ours; `site` is empty for the import."""

    statement: Statement
    site: str


@dataclass(frozen=True, slots=True)
class Tap:
    """One call of ours around an expression; `grouped`: its parentheses are ours too."""

    call: cst.Call
    inner: cst.BaseExpression
    site: str
    grouped: bool
    line: int


def remove_ours(data: bytes, file: str) -> Removed:
    """The bytes as they were before probes were put in; the same where there are none.

    Finds probes and their import. Inserted code of a user's carries no mark and stays. Raises
    `PatchError` (`parse`, `lossy`) like any reading of a source.
    """
    if b"_sgldbg" not in data:
        return Removed(data, ())
    source = read_source(data, file)
    ours, taps = find_ours(source), find_taps(source)
    cut = [_Cut(o.statement) for o in ours]
    mine = {id(o.statement.node) for o in ours}
    wanted = {i for c in cut for i in c.nodes(mine)}
    wanted |= {id(node) for tap in taps for node in (tap.call, tap.inner)}
    code, recorder = generate(source.module, frozenset(wanted))
    offsets = recorder.offsets()

    def edge(token: int) -> int:
        return offsets[min(token, len(offsets) - 1)]

    ranges = []
    for begin, end in (pair for c in cut for pair in c.ranges(mine)):
        start = recorder.begins[id(begin)]
        if isinstance(begin, cst.EmptyLine):  # a comment above stays
            start = recorder.ends[id(begin)]
        ranges.append((edge(start), edge(recorder.ends[id(end)])))
    for tap in taps:
        call, inner = id(tap.call), id(tap.inner)
        ranges.append((edge(recorder.begins[call]), edge(recorder.begins[inner]) + tap.grouped))
        ranges.append((edge(recorder.ends[inner]) - tap.grouped, edge(recorder.ends[call])))
    pieces, at = [], 0
    for start, stop in final_line(source, code, merged(sorted(ranges))):
        pieces.append(code[at:start])
        at = stop
    left = "".join([*pieces, code[at:]])
    sites = (*(o.site for o in ours), *(tap.site for tap in taps))
    return Removed(left.encode(source.module.encoding), sites)


class _Cut:
    """What goes with one statement of ours: its line, or its part of a line."""

    def __init__(self, statement: Statement) -> None:
        self.node = statement.node
        self.line = statement.container
        self.row: Sequence[cst.CSTNode] = getattr(self.line, "body", ())

    def ranges(self, mine: set[int]) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
        left = [n for n in self.row if id(n) not in mine]
        if not left and isinstance(self.line, cst.SimpleStatementLine):
            above = self.line.leading_lines
            yield (above[-1] if above else self.line, self.line)
        elif left:
            yield (self.node, self.node)
            last = self.row[-1]
            closed = getattr(last, "semicolon", None)
            before = getattr(left[-1], "semicolon", None)
            # The semicolon before our last statement came with it, unless it has one itself.
            if last is self.node and not isinstance(closed, cst.Semicolon):
                assert isinstance(before, cst.Semicolon)
                yield (before, before)

    def nodes(self, mine: set[int]) -> Iterator[int]:
        for begin, end in self.ranges(mine):
            yield id(begin)
            yield id(end)


def find_ours(source: Source) -> list[Ours]:
    """Our statements in a source, in order."""
    if b"_sgldbg" not in source.data:
        return []
    shapes = _shapes()
    found = []
    for statement in walk_block(source.module, (), nested=True):
        site = _site_of(statement.node, shapes)
        if site is not None:
            found.append(Ours(statement, site))
    return found


def find_taps(source: Source) -> list[Tap]:
    """Our calls around expressions, in order of their statements, outer ones first."""
    if b"_sgldbg.tap" not in source.data:
        return []
    shapes = [(_tap_shape(name), grouped) for grouped, name in NAMES.items()]
    found = []
    waiting: list[tuple[cst.CSTNode, int]] = [(source.module, 1)]
    while waiting:
        node, line = waiting.pop()
        if id(node) in source.starts:
            line = source.line_of(node)
        if isinstance(node, cst.Call):
            found += [t for shape, grouped in shapes for t in _tap(node, shape, line, grouped)]
        waiting += ((child, line) for child in reversed(node.children))
    # Where nothing is returned, our call with `None` is a statement, and goes as a whole.
    whole = {id(getattr(ours.statement.node, "value", None)) for ours in find_ours(source)}
    return [tap for tap in found if id(tap.call) not in whole]


def _tap(node: cst.Call, shape: Pattern, line: int, grouped: bool) -> Iterator[Tap]:
    bindings = match(shape, node)
    site = bindings.get("SITE") if bindings else None
    if isinstance(site, cst.SimpleString):
        yield Tap(node, node.args[1].value, str(ast.literal_eval(site.value)), grouped, line)


def _tap_shape(name: str) -> Pattern:
    code = f"_sgldbg.{name}($SITE, $_, None if _sgldbg.off($SITE) else $_)"
    node = parse_pattern(code).node
    assert isinstance(node, cst.Expr)
    return Pattern(code, node.value, is_header=False)


def _shapes() -> tuple[Pattern, ...]:
    return (
        parse_pattern("_sgldbg.off($SITE) or _sgldbg.hit($SITE, $_)"),
        parse_pattern("_sgldbg.tap($SITE, None, None if _sgldbg.off($SITE) else $_)"),
    )


def _site_of(node: cst.CSTNode, shapes: tuple[Pattern, ...]) -> str | None:
    if isinstance(node, cst.ImportFrom):
        return "" if _is_our_import(node) else None
    for shape in shapes if isinstance(node, cst.Expr) else ():
        bindings = match(shape, node)
        site = bindings.get("SITE") if bindings else None
        if isinstance(site, cst.SimpleString):
            return str(ast.literal_eval(site.value))
    return None


def _is_our_import(node: cst.ImportFrom) -> bool:
    if isinstance(node.names, cst.ImportStar) or node.relative or len(node.names) != 1:
        return False
    name = node.names[0]
    return isinstance(name.name, cst.Name) and name.name.value == "_sgldbg" and not name.asname
