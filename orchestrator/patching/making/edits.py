"""What each kind of edit puts into a file, and beside which statement, so that lines stay."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Decorate, Import, Insert
from orchestrator.patching.making.splice import Change
from orchestrator.patching.making.taps import RUNTIME, make_tap, tap_code
from orchestrator.patching.source import Source
from orchestrator.patching.structure.place import Place, is_future
from orchestrator.patching.structure.walk import Path, Statement, Step, docstring_of, walk_block
from orchestrator.patching.unreadable import UNREADABLE


@dataclass(frozen=True, slots=True)
class Made:
    """One edit at one place as a change of the tree; `moves` says that line numbers change."""

    change: Change
    moves: bool


def probe_code(site: str, *, shown: str) -> str:
    """The one expression statement of a probe; `shown` is the code that gives the names there."""
    return f'{RUNTIME}.off("{site}") or {RUNTIME}.hit("{site}", {shown})'


def make_probe(place: Place, site: str, *, shown: str, takes_value: bool) -> Made:
    """A probe on the line of its anchor, or on one beside it, wherever that means the same.

    At a compound statement it ends the line before, or begins the line behind; a line of its own
    remains where there is neither. With `takes_value` it stands around an expression: that of the
    place, or what a `return` gives.
    """
    expression = _value_at(place) if takes_value else None
    if expression is not None:
        path, value = expression
        return Made(Change(path, "wrap", (make_tap(site, value, shown=shown),)), moves=False)
    code = tap_code(site, "None", shown) if takes_value else probe_code(site, shown=shown)
    node = _small(code)
    statement = place.statement
    if statement.is_small:
        return Made(Change(statement.path, place.side, (node,)), moves=False)
    beside = _neighbour(statement, -1 if place.side == "before" else 1)
    if beside is not None:
        side = "after" if place.side == "before" else "before"
        return Made(Change(beside, side, (node,)), moves=False)
    return Made(Change(statement.path, place.side, (_line(node),)), moves=True)


def _value_at(place: Place) -> tuple[Path, cst.BaseExpression] | None:
    """The expression whose value a probe takes; `None` where nothing is returned."""
    if place.expression is not None:
        return place.expression.path, place.expression.node
    node = place.statement.node
    if place.side == "before" and isinstance(node, cst.Return) and node.value is not None:
        return (*place.statement.path, Step(node, "value")), node.value
    return None


def make_decorator(place: Place, action: Decorate) -> Made:
    """A decorator on a line of its own, the one that is applied first."""
    node = parse_decorator(action)
    newline = newline_at(place)
    if newline is not None:
        changed = node.visit(_Newlines(newline))
        assert isinstance(changed, cst.Decorator)
        node = changed
    return Made(Change(place.statement.path, "decorate", (node,)), moves=True)


def parse_decorator(action: Decorate) -> cst.Decorator:
    """The decorator of an edit; raises `PatchError` with state `parse`."""
    try:
        expression = cst.parse_expression(textwrap.dedent(action.code).strip().removeprefix("@"))
    except UNREADABLE:
        raise PatchError(
            "the decorator cannot be parsed", state="parse", span=action.span
        ) from None
    return cst.Decorator(expression)


def _neighbour(statement: Statement, step: int) -> Path | None:
    """The way to the small statement next to a compound one, in its own block."""
    block, index = statement.container, statement.index + step
    body: Sequence[cst.CSTNode] = getattr(block, "body", ())
    if not 0 <= index < len(body) or not isinstance(body[index], cst.SimpleStatementLine):
        return None
    line = body[index]
    assert isinstance(line, cst.SimpleStatementLine)
    number = len(line.body) - 1 if step < 0 else 0
    above = statement.path[:-1]
    return (*above, Step(block, "body", index), Step(line, "body", number))


def make_insert(source: Source, place: Place, insert: Insert) -> Made:
    """The user's statements on lines of their own; on a shared line where they are simple.

    Raises `PatchError` where the code cannot be parsed (state `parse`), or where it needs lines of
    its own and the place has none (state `refused`).
    """
    nodes = parse_insert(insert)
    path, side = place.statement.path, place.side
    newline = newline_at(place)
    if newline is not None:
        nodes = tuple(with_newline(n, newline) for n in nodes)
    if not place.statement.is_small:
        return Made(Change(path, side, nodes), moves=True)
    line = path[-1].node
    body: Sequence[cst.CSTNode] = getattr(line, "body", ())
    at_edge = place.statement.index == (0 if side == "before" else len(body) - 1)
    if isinstance(line, cst.SimpleStatementLine) and at_edge:
        return Made(Change(path[:-1], side, nodes), moves=True)
    small = all_small(nodes)
    if small is None:
        raise PatchError(
            f"line {source.line_of(place.statement.node)} is shared by several statements: "
            "only simple ones can be put among them",
            state="refused",
            span=insert.span,
            hints=("insert simple statements, or anchor on a statement that has its line alone",),
            file=source.file,
        )
    return Made(Change(path, side, small), moves=False)


def parse_insert(insert: Insert) -> tuple[cst.SimpleStatementLine | cst.BaseCompoundStatement, ...]:
    """The statements of an insert, their common indentation removed."""
    try:
        module = cst.parse_module(textwrap.dedent(insert.code).strip("\n") + "\n")
    except UNREADABLE:
        raise PatchError(
            "the code to insert cannot be parsed", state="parse", span=insert.span
        ) from None
    if not module.body:
        raise PatchError("the code to insert holds no statement", state="parse", span=insert.span)
    first, *rest = module.body
    if module.header:
        first = first.with_changes(leading_lines=(*module.header, *first.leading_lines))
    return (first, *rest)


def all_small(nodes: Sequence[cst.CSTNode]) -> tuple[cst.BaseSmallStatement, ...] | None:
    """The small statements of lines that hold nothing else, in one row."""
    small: list[cst.BaseSmallStatement] = []
    for node in nodes:
        if not isinstance(node, cst.SimpleStatementLine):
            return None
        small.extend(node.body)
    return tuple(small)


def newline_at(place: Place) -> str | None:
    """The end of the anchor's line, where it is not the file's usual one."""
    node: cst.CSTNode = place.statement.path[-1].node if place.statement.is_small else (
        place.statement.node
    )  # fmt: skip
    body = getattr(node, "body", None)
    trailing = getattr(node, "trailing_whitespace", None) or getattr(body, "header", None)
    newline = getattr(trailing, "newline", None)
    return newline.value if newline is not None else None


class _Newlines(cst.CSTTransformer):
    def __init__(self, value: str) -> None:
        self.value = value

    def leave_Newline(  # noqa: N802
        self, original_node: cst.Newline, updated_node: cst.Newline
    ) -> cst.Newline:
        """Give every line the same end."""
        return updated_node.with_changes(value=self.value)


def with_newline(
    node: cst.SimpleStatementLine | cst.BaseCompoundStatement, value: str
) -> cst.SimpleStatementLine | cst.BaseCompoundStatement:
    """The statement with all its lines ending like that."""
    changed = node.visit(_Newlines(value))
    assert isinstance(changed, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    return changed


def parse_import(action: Import) -> tuple[cst.BaseSmallStatement, ...]:
    """The import statements of an edit, one by one."""
    small = all_small(parse_insert(Insert(action.code, action.span)))
    if small is None or not all(isinstance(s, cst.Import | cst.ImportFrom) for s in small):
        raise PatchError("only import statements can be imported", state="parse", span=action.span)
    return small


def imported_names(node: cst.BaseSmallStatement) -> Iterator[str]:
    """The names that an import statement binds."""
    names = node.names if isinstance(node, cst.Import | cst.ImportFrom) else ()
    for alias in names if not isinstance(names, cst.ImportStar) else ():
        bound: cst.CSTNode = alias.asname.name if alias.asname is not None else alias.name
        while isinstance(bound, cst.Attribute):
            bound = bound.value
        if isinstance(bound, cst.Name):
            yield bound.value


def runtime_import(package: str) -> cst.BaseSmallStatement:
    """The one import that the probes of a file share."""
    return _small(f"from {package} import {RUNTIME}")


def make_imports(
    source: Source, nodes: Sequence[cst.BaseSmallStatement], changes: Sequence[Change]
) -> Made:
    """Imports before anything that uses them.

    They end the line of the docstring or the last `__future__` import, or begin the line of a
    simple statement that runs before all sites; lines of their own remain where there is none.
    """
    statements = list(walk_block(source.module, (), nested=False))
    docstring = docstring_of(source.module)
    gone = {_key(c.path) for c in changes if c.side == "replace"}
    leading: Statement | None = None
    for statement in statements:
        if statement.node is not docstring and not is_future(statement.node):
            break
        leading = statement
    own_lines = tuple(_line(node) for node in nodes)
    if leading is not None:
        if _key(leading.path[:-1]) in gone:
            return Made(Change(leading.path[:-1], "after", own_lines), moves=True)
        return Made(Change(leading.path, "after", tuple(nodes)), moves=False)
    first_use = min((change.top for change in changes), default=len(statements))
    own_line = any(change.top == first_use and len(change.path) == 1 for change in changes)
    for statement in statements:
        index = statement.path[0].index
        assert index is not None
        simple = len(statement.path) == 2 and statement.is_small
        if not simple or _key(statement.path[:-1]) in gone:
            continue
        if index < first_use or (index == first_use and not own_line):
            return Made(Change(statement.path, "before", tuple(nodes)), moves=False)
    return Made(Change(statements[0].path[:1], "before", own_lines), moves=True)


def _key(path: Path) -> tuple[int, str, int | None]:
    last = path[-1]
    return id(last.node), last.field, last.index


def _small(code: str) -> cst.BaseSmallStatement:
    line = cst.parse_statement(code)
    assert isinstance(line, cst.SimpleStatementLine)
    return line.body[0]


def _line(node: cst.BaseSmallStatement) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([node])
