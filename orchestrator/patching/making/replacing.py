"""What takes the place of a statement: code in which metavariables stand for what they matched."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Delete, Replace
from orchestrator.patching.making.edits import Made, all_small, newline_at, with_newline
from orchestrator.patching.making.splice import Change
from orchestrator.patching.source import Source
from orchestrator.patching.structure.match import Bindings, parameter_row, same_code
from orchestrator.patching.structure.pattern import hole_of, mangle, run_of
from orchestrator.patching.structure.place import Place
from orchestrator.patching.unreadable import UNREADABLE

Line = cst.SimpleStatementLine | cst.BaseCompoundStatement


class _NotAnArgument(Exception):
    """A run was put where its elements cannot stand."""


def make_replace(source: Source, place: Place, action: Replace | Delete) -> Made:
    """The new statements in the place of the anchor, on its line where they fit there.

    Raises `PatchError` where the code cannot be parsed or holds a metavariable that the anchor
    does not bind (state `parse`), or needs lines that the place has not (state `refused`).
    """
    lines = fill(source, place, action)
    newline = newline_at(place)
    if newline is not None:
        lines = tuple(with_newline(n, newline) for n in lines)
    path = place.statement.path
    container = place.statement.container
    small = all_small(lines)
    if not place.statement.is_small:
        nodes: Sequence[cst.CSTNode] = lines
    elif small is not None and len(lines) == 1:
        nodes = small
    elif isinstance(container, cst.SimpleStatementLine) and len(container.body) == 1:
        path, nodes = path[:-1], _with_comment(lines, container)
    elif small is not None:
        nodes = small
    else:
        raise PatchError(
            f"line {source.line_of(place.statement.node)} is shared by several statements: "
            "only simple ones can take the place of one of them",
            state="refused",
            span=action.span,
            hints=("replace it with simple statements",),
            file=source.file,
        )
    change = Change(path, "replace", tuple(nodes))  # type: ignore[arg-type]
    old = [place.statement.node if path is place.statement.path else container]
    return Made(change, moves=_height(source, old) != _height(source, nodes))


def fill(source: Source, place: Place, action: Replace | Delete) -> tuple[Line, ...]:
    """What takes the place of the anchor, its metavariables filled in; errors of `make_replace`."""
    if isinstance(action, Delete):
        return (cst.SimpleStatementLine([cst.Pass()]),)
    try:
        template = cst.parse_module(mangle(textwrap.dedent(action.code).strip("\n")) + "\n")
    except UNREADABLE:
        raise PatchError(
            "the code that replaces cannot be parsed", state="parse", span=action.span
        ) from None
    if not template.body:
        raise PatchError("the code that replaces holds no statement", state="parse",
                         span=action.span)  # fmt: skip
    _refuse_unbound(template, place.bindings, action)
    for parenthesized in (False, True):
        filler = _Filler(place, parenthesized)
        try:
            filled = filler.fill(template)
            assert isinstance(filled, cst.Module)
            again = cst.parse_module(filled.code)
        except (*UNREADABLE, _NotAnArgument):
            continue
        if same_code(filled, again):
            first, *rest = filled.body
            above = (*filled.header, *first.leading_lines)
            return (first.with_changes(leading_lines=above), *rest)
    raise PatchError(
        "with what its metavariables stand for, the code that replaces is no Python",
        state="parse",
        span=action.span,
        file=source.file,
    )


def _refuse_unbound(template: cst.Module, bindings: Bindings, action: Replace) -> None:
    waiting: list[cst.CSTNode] = [template]
    while waiting:
        node = waiting.pop()
        run, one = run_of(node), hole_of(node)
        name = run if run is not None else one
        if name is not None and name not in bindings:
            sign = "$$$" if run is not None else "$"
            raise PatchError(
                f"`{sign}{name}` stands for nothing: the anchor has no such metavariable",
                state="parse",
                span=action.span,
                hints=("name in the anchor what the new code repeats: `$NAME`, `$$$NAME`",),
            )
        waiting.extend(node.children)


class _Filler:
    """Puts what the metavariables stand for into a copy of a template."""

    def __init__(self, place: Place, parenthesized: bool) -> None:
        self.bindings: Mapping[str, object] = place.bindings
        self.parenthesized = parenthesized
        # The line of each small statement, so that a run of them keeps its comments.
        self.lines = dict(_lines_of(place.statement.node))

    def fill(self, node: cst.CSTNode) -> cst.CSTNode:
        hole = hole_of(node)
        if hole is not None:
            return self.bound(hole)
        if isinstance(node, cst.Parameters):
            return _parameters(self.row(parameter_row(node)))
        changed: dict[str, object] = {}
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            if isinstance(value, cst.CSTNode):
                changed[field.name] = self.fill(value)
            elif isinstance(value, list | tuple):
                changed[field.name] = self.row(value)
        return node.with_changes(**changed)

    def bound(self, name: str) -> cst.CSTNode:
        value = self.bindings[name]
        if not isinstance(value, cst.BaseExpression):
            raise _NotAnArgument
        copy = value.deep_clone()
        plain = isinstance(copy, cst.Name | cst.Attribute | cst.Call | cst.Subscript)
        if self.parenthesized and not plain and not copy.lpar:
            return copy.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return copy

    def row(self, items: Sequence[object]) -> list[object]:
        out: list[object] = []
        for item in items:
            name = _run_name(item)
            if name is not None:
                run = self.bindings[name]
                if not isinstance(run, tuple):
                    raise _NotAnArgument
                is_line = isinstance(item, cst.SimpleStatementLine)
                out += self.statements(run) if is_line else [_clone(one) for one in run]
            elif isinstance(item, tuple):  # `*args` of parameters
                out.append((item[0], self.fill(item[1])))
            else:
                out.append(self.fill(item) if isinstance(item, cst.CSTNode) else item)
        return out

    def statements(self, run: Sequence[object]) -> Iterator[object]:
        """A run of statements as lines; those that shared a line share one again."""
        left = list(run)
        while left:
            node = left.pop(0)
            assert isinstance(node, cst.CSTNode)
            if not isinstance(node, cst.BaseSmallStatement):
                yield node.deep_clone()
                continue
            line = self.lines.get(id(node))
            rest = list(line.body[1:]) if line is not None and line.body[0] is node else None
            if line is not None and rest is not None and _same_nodes(left[: len(rest)], rest):
                del left[: len(rest)]
                yield line.deep_clone()
            else:
                yield cst.SimpleStatementLine([node.with_changes(
                    semicolon=cst.MaybeSentinel.DEFAULT
                ).deep_clone()])  # fmt: skip


def _same_nodes(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _clone(node: object) -> object:
    if isinstance(node, tuple):
        return (node[0], node[1].deep_clone())
    return node.deep_clone() if isinstance(node, cst.CSTNode) else node


def _run_name(item: object) -> str | None:
    """The name of the run that an element of a row is, if it is one."""
    if isinstance(item, cst.SimpleStatementLine) and len(item.body) == 1:
        return run_of(item.body[0])
    return run_of(item) if isinstance(item, cst.CSTNode) else None


def _lines_of(node: cst.CSTNode) -> Iterator[tuple[int, cst.SimpleStatementLine]]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, cst.SimpleStatementLine):
            yield from ((id(small), current) for small in current.body)
        elif not isinstance(current, cst.BaseExpression):
            waiting.extend(current.children)


def _parameters(row: Sequence[object]) -> cst.Parameters:
    """Parameters from one row of them, as `parameter_row` makes it."""
    parts: dict[str, list[object]] = {"params": [], "posonly_params": [], "kwonly_params": []}
    singles: dict[str, object] = {}
    into = "params"
    for item in row:
        if item == "/":
            parts["posonly_params"], parts["params"] = parts["params"], []
            singles["posonly_ind"] = cst.ParamSlash()
        elif item == "*":
            singles["star_arg"], into = cst.ParamStar(), "kwonly_params"
        elif isinstance(item, tuple) and item[0] == "*":
            singles["star_arg"], into = item[1], "kwonly_params"
        elif isinstance(item, tuple):
            singles["star_kwarg"] = item[1]
        else:
            parts[into].append(item)
    return cst.Parameters(**parts, **singles)  # type: ignore[arg-type]


def _with_comment(lines: Sequence[Line], old: cst.SimpleStatementLine) -> Sequence[Line]:
    """The comment behind the old statement ends the last of the new lines."""
    last = lines[-1]
    if isinstance(last, cst.SimpleStatementLine) and last.trailing_whitespace.comment is None:
        last = last.with_changes(trailing_whitespace=old.trailing_whitespace)
    return (*lines[:-1], last)


def _height(source: Source, nodes: Sequence[cst.CSTNode]) -> int:
    """How many lines nodes take, comments above them left out."""
    lines = 0
    for node in nodes:
        is_line = not isinstance(node, cst.BaseSmallStatement)
        bare = node.with_changes(leading_lines=()) if is_line else node
        lines += source.module.code_for_node(bare).count("\n")
    return lines if isinstance(nodes[-1], cst.BaseCompoundStatement) else max(1, lines)
