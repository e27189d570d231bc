"""Finds the places in a source that an anchor describes, whatever kind of place it names."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Anchor
from orchestrator.model.source import Span
from orchestrator.patching.finding import ladder
from orchestrator.patching.finding.anchor import (
    candidates,
    choose,
    find_scope,
    find_statements,
    make_pattern,
    within,
)
from orchestrator.patching.scope.standing import find_standing
from orchestrator.patching.source import Source
from orchestrator.patching.structure.expressions import walk_expressions
from orchestrator.patching.structure.match import match
from orchestrator.patching.structure.pattern import Pattern
from orchestrator.patching.structure.place import Place, is_future
from orchestrator.patching.structure.walk import (
    Definition,
    Statement,
    docstring_of,
    scope_name,
    walk_block,
    walk_definition,
    walk_parts,
)

# Statements that say what names mean; the start of a function lies behind them.
_NAMES = (cst.Global, cst.Nonlocal)


def find_places(
    source: Source, anchor: Anchor, spans: Mapping[str, Span] | None = None
) -> tuple[Place, ...]:
    """The places that the anchor describes, in order of the source; never an approximation.

    Several come back only where the anchor asks for all, or means all ways out of a function.
    `spans` says where the keys of the anchor (`in`, `which`) stand in the patch's file. Raises
    `PatchError` with state `not found`, `ambiguous`, `out of range`, `refused` or (for the
    anchor's own text) `parse`.
    """
    scope = find_scope(source, anchor, spans or {})
    match anchor.position:
        case "start":
            return (_start_of(source, anchor, scope),)
        case "end" | "return" | "raise":
            return _ways_out(source, anchor, scope)
        case "wrap":
            return _expressions(source, anchor, scope)
        case "decorate":
            assert scope is not None
            return (Place(scope, "decorate", anchor.scope),)
        case _:
            return find_statements(source, anchor, scope)


def _start_of(source: Source, anchor: Anchor, scope: Statement | None) -> Place:
    """Behind the docstring and leading `global`, `nonlocal` and `__future__` lines, if any."""
    if scope is None:
        statements = list(walk_block(source.module, (), nested=False))
        docstring = docstring_of(source.module)
    else:
        assert isinstance(scope.node, Definition)
        statements = list(walk_parts(scope.node, scope.path, nested=False))
        docstring = docstring_of(scope.node.body)
    if not statements:
        raise PatchError(
            f"`{source.file}` holds no statement", state="not found", span=anchor.span,
            file=source.file,
        )  # fmt: skip
    last: Statement | None = None
    for statement in statements:
        node = statement.node
        if node is not docstring and not isinstance(node, _NAMES) and not is_future(node):
            break
        last = statement
    return Place(last or statements[0], "after" if last else "before", anchor.scope)


def _ways_out(source: Source, anchor: Anchor, scope: Statement | None) -> tuple[Place, ...]:
    """Before each `return` or `raise` of a function, and behind its end where that is reached."""
    if scope is None or not isinstance(scope.node, cst.FunctionDef):
        raise PatchError(
            f"`at: {anchor.position}` is a place in functions, and `{anchor.scope}` is a class",
            state="refused",
            span=anchor.span,
            file=source.file,
        )
    end = None if anchor.position == "raise" else _end_of(source, scope)
    if anchor.position == "end":
        if end is None:
            raise _no_way_out(source, anchor, f"`{anchor.scope}` never reaches its end",
                              "the places where it is left: `at: return`")  # fmt: skip
        return (end,)
    kind = cst.Return if anchor.position == "return" else cst.Raise
    inside = within(anchor, scope)
    found = [
        Place(s, "before", scope_name(s))
        for s in walk_definition(scope)
        if isinstance(s.node, kind) and inside(s)
    ]
    if end is not None and inside(end.statement):
        found.append(end)
    if not found:
        never = "returns" if anchor.position == "return" else "raises"
        raise _no_way_out(source, anchor, f"`{anchor.scope}` never {never} by itself",
                          "where it is called: `wrap`")  # fmt: skip
    return choose(source, anchor, found, all_of_them=True)


def _end_of(source: Source, scope: Statement) -> Place | None:
    """Behind a function's last statement; `None` where no way leads there."""
    body = getattr(scope.node, "body", None)
    last = [
        s
        for s in walk_definition(scope)
        if s.container is body or (s.is_small and s.path[-2].node is body)
    ][-1]
    place = Place(last, "after", scope_name(last))
    standing = find_standing(source, place)
    if standing is None:
        return None if isinstance(last.node, cst.Return | cst.Raise) else place
    return place if standing.state is not None else None


def _no_way_out(source: Source, anchor: Anchor, message: str, hint: str) -> PatchError:
    return PatchError(message, state="not found", span=anchor.span, hints=(hint,), file=source.file)


def _expressions(source: Source, anchor: Anchor, scope: Statement | None) -> tuple[Place, ...]:
    text = (anchor.code or "").strip()
    # In parentheses, an expression may span lines, and a bare generator is one.
    wanted = make_pattern(f"({text}\n)", anchor).node
    if not isinstance(wanted, cst.Expr):
        raise PatchError(
            f"`{text}` is a statement, and `wrap` goes around an expression",
            state="refused",
            span=anchor.code_span or anchor.span,
            hints=("name the expression alone, like `f($$$)` of `x = f($$$)`",),
            file=source.file,
        )
    inner = Pattern(text, wanted.value, is_header=False)
    inside = within(anchor, scope)
    found = [
        Place(s, "wrap", scope_name(s), expression, bindings)
        for s in candidates(source, scope)
        if inside(s)
        for expression in walk_expressions(s)
        if (bindings := match(inner, expression.node)) is not None
    ]
    if not found:
        raise ladder.missing_expression(source, anchor, inner, candidates(source, scope))
    return choose(source, anchor, found)
