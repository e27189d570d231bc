"""Whether what an edit brings stands in a file already: said only where that can be told."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import libcst as cst

from orchestrator.model.patch import Decorate, Insert, Replace
from orchestrator.patching.making.edits import parse_decorator, parse_insert
from orchestrator.patching.making.replacing import fill
from orchestrator.patching.source import Source
from orchestrator.patching.structure.match import match, same_code
from orchestrator.patching.structure.pattern import (
    Pattern,
    PatternError,
    hole_of,
    mangle,
    parse_pattern,
    run_of,
)
from orchestrator.patching.structure.place import Place
from orchestrator.patching.structure.walk import Statement, walk_block
from orchestrator.patching.unreadable import UNREADABLE

# What a statement gives names to, by the fields of its node.
_BOUND: dict[type[cst.CSTNode], tuple[str, ...]] = {
    cst.Assign: ("targets",),
    cst.AnnAssign: ("target", "annotation"),
    cst.AugAssign: ("target",),
    cst.NamedExpr: ("target",),
    cst.For: ("target",),
    cst.CompFor: ("target",),
    cst.WithItem: ("asname",),
    cst.ExceptHandler: ("name",),
    cst.FunctionDef: ("name",),
    cst.ClassDef: ("name",),
}
# What a module runs whatever is true; an `if TYPE_CHECKING:` binds no name while a server runs.
_ALWAYS = (cst.Module, cst.SimpleStatementLine, cst.BaseSuite, cst.Try, cst.TryStar, cst.With,
           cst.Finally)  # fmt: skip


def find_replaced(
    source: Source, action: Replace, anchor: str, places: Sequence[Place]
) -> list[cst.CSTNode]:
    """Of the places that the anchor fits, those that are as the replacement would have them.

    A replacement that reads like every statement of the anchor, as `y = $A` does for `y = g($A)`,
    tells nothing by its form: such a place is done only where replacing would not change it. One of
    several statements tells it by all of them, in a row.
    """
    inside = _find_nested(action, anchor, places)
    if inside:
        return inside
    pattern = _replacement(action)
    if pattern is None:
        run = _run(action)
        return [p.statement.node for p in places if run and _stands_around(run, p.statement)]
    if _fits_all(pattern, anchor):
        return [p.statement.node for p in places if _changes_nothing(source, p, action)]
    named = _names_something(pattern.node)
    return [
        n for n in (p.statement.node for p in places) if named and match(pattern, n) is not None
    ]


def _find_nested(action: Replace, anchor: str, places: Sequence[Place]) -> list[cst.CSTNode]:
    """Places inside of the replacement, where that has the anchor's code in a body of its own, as
    `if x:` around it has.
    """
    run = _run(action, least=1)
    if run is None:
        return []
    wanted = parse_pattern(anchor)
    nested = (s.node for s in walk_block(run, (), nested=True) if len(s.path) > 2)
    if not any(match(wanted, node) is not None for node in nested):
        return []
    return [
        place.statement.node
        for place in places
        if any(_stands_around(run, outer) for outer in _around(place.statement))
    ]


def _around(statement: Statement) -> Iterator[Statement]:
    """The statements in which one stands, outermost first."""
    path = statement.path
    for number, (step, below) in enumerate(pairwise(path), 1):
        if step.field == "body" and isinstance(below.node, cst.BaseCompoundStatement):
            yield Statement(below.node, path[:number])


def find_instead(
    action: Replace, anchor: str, statements: Iterable[Statement]
) -> list[cst.CSTNode]:
    """Where the anchor fits nowhere, the statements that show that it was replaced before.

    Only a replacement that says more than its anchor shows that, and one that names something: of
    code with metavariables, beside what it assigns to. `y = $A` and `return $A` read like many
    statements that stand for reasons of their own.
    """
    pattern = _replacement(action)
    if pattern is None:
        run = _run(action)
        skip = _BOUND if run and _has_holes(run) else {}
        if not run or not _names_something(run, skip):
            return []
        return [s.node for s in statements if _stands_from(run, *_row_of(s))]
    if _fits_all(pattern, anchor):
        return []
    skip = _BOUND if _has_holes(pattern.node) else {}
    if not _names_something(pattern.node, skip):
        return []
    return [s.node for s in statements if match(pattern, s.node) is not None]


def stands_already(place: Place, insert: Insert, position: str) -> bool:
    """Whether the statements to insert stand at the place as they would after the edit.

    At the `start` of a function, and at its `end`, they are then what stands there.
    """
    wanted = _row(cst.Module(parse_insert(insert)))
    row, index = _row_of(place.statement)
    if place.side == "after":
        starts = [index + 1]
        starts += [index + 1 - len(wanted)] if position in ("end", "return") else []
    else:
        starts = [index - len(wanted)]
        starts += [index] if position == "start" else []
    return any(
        start >= 0
        and len(row[start : start + len(wanted)]) == len(wanted)
        and all(map(same_code, wanted, row[start : start + len(wanted)]))
        for start in starts
    )


def is_decorated(place: Place, action: Decorate) -> bool:
    """Whether the decorator that is applied first is the one that an edit brings."""
    decorators: Sequence[cst.Decorator] = getattr(place.statement.node, "decorators", ())
    return any(same_code(parse_decorator(action), last) for last in decorators[-1:])


def find_imports(source: Source, node: cst.BaseSmallStatement) -> tuple[Statement, ...]:
    """Where the module itself imports the same already, whatever branches it takes."""
    return tuple(
        statement
        for statement in walk_block(source.module, (), nested=False)
        if same_code(node, statement.node)
        and all(isinstance(step.node, _ALWAYS) for step in statement.path)
    )


def _replacement(action: Replace) -> Pattern | None:
    """The replacement as a pattern, where it is one statement."""
    try:
        pattern = parse_pattern(action.code)
    except PatternError:
        return None
    return pattern if pattern.is_statement and not pattern.is_header else None


def _run(action: Replace, least: int = 2) -> cst.IndentedBlock | None:
    """A replacement of so many statements, or more, as a block that holds nothing else.

    `None` where it cannot be told how many statements it is, as with `$$$BODY` among them.
    """
    try:
        template = cst.parse_module(mangle(textwrap.dedent(action.code).strip("\n")) + "\n")
    except UNREADABLE:
        return None
    row = _row(template)
    if len(row) < least or any(run_of(node) is not None for node in row):
        return None
    block = _block(row)
    return block if _names_something(block) else None


def _stands_around(run: cst.IndentedBlock, statement: Statement) -> bool:
    """Whether the run stands there with this statement as one of its own."""
    row, index = _row_of(statement)
    return any(_stands_from(run, row, index - n) for n in range(len(run.body)) if n <= index)


def _stands_from(run: cst.IndentedBlock, row: Sequence[cst.CSTNode], index: int) -> bool:
    there = row[index : index + len(run.body)]
    pattern = Pattern("", run, is_header=False)
    return len(there) == len(run.body) and match(pattern, _block(there)) is not None


def _row_of(statement: Statement) -> tuple[Sequence[cst.CSTNode], int]:
    """The statements of the block in which one stands, whichever share a line, and its index."""
    block = statement.container
    if isinstance(block, cst.SimpleStatementLine):
        block = statement.path[-2].node
    row = _row(block)
    return row, next(i for i, node in enumerate(row) if node is statement.node)


def _row(block: cst.CSTNode) -> list[cst.CSTNode]:
    row: list[cst.CSTNode] = []
    for item in getattr(block, "body", ()):
        row.extend(item.body if isinstance(item, cst.SimpleStatementLine) else [item])
    return row


def _block(row: Sequence[cst.CSTNode]) -> cst.IndentedBlock:
    """A block of these statements, each on a line of its own."""
    lines = [
        cst.SimpleStatementLine([node]) if isinstance(node, cst.BaseSmallStatement) else node
        for node in row
    ]
    return cst.IndentedBlock(lines)  # type: ignore[arg-type]


def _fits_all(pattern: Pattern, anchor: str) -> bool:
    """Whether a pattern fits whatever the anchor fits: the anchor's holes are code to it."""
    return match(pattern, parse_pattern(anchor).node) is not None


def _changes_nothing(source: Source, place: Place, action: Replace) -> bool:
    lines = fill(source, place, action)
    made: cst.CSTNode = lines[0]
    if isinstance(made, cst.SimpleStatementLine) and len(made.body) == 1:
        made = made.body[0]
    return len(lines) == 1 and same_code(made, place.statement.node)


def _names_something(
    node: cst.CSTNode, skip: dict[type[cst.CSTNode], tuple[str, ...]] | None = None
) -> bool:
    """Whether code holds a name that is no metavariable; `skip`: fields that do not count."""
    return any(
        isinstance(n, cst.Name)
        and n.value not in ("None", "True", "False")
        and hole_of(n) is None
        and run_of(n) is None
        for n in _walk(node, skip or {})
    )


def _has_holes(node: cst.CSTNode) -> bool:
    return any(hole_of(n) is not None or run_of(n) is not None for n in _walk(node, {}))


def _walk(
    node: cst.CSTNode, skip: dict[type[cst.CSTNode], tuple[str, ...]]
) -> Iterator[cst.CSTNode]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        left_out: set[int] = set()
        for field in skip.get(type(current), ()):
            value = getattr(current, field)
            left_out.update(map(id, value if isinstance(value, list | tuple) else [value]))
        waiting.extend(c for c in current.children if id(c) not in left_out)
