"""Finds the places in a source that an anchor describes: exactly those, or a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Anchor
from orchestrator.model.source import Span
from orchestrator.patching import ladder
from orchestrator.patching.source import Source
from orchestrator.patching.structure.match import match
from orchestrator.patching.structure.pattern import Pattern, PatternError, parse_pattern
from orchestrator.patching.structure.walk import (
    Definition,
    Path,
    Statement,
    docstring_of,
    find_definitions,
    scope_name,
    walk_block,
    walk_definition,
    walk_parts,
)

# Statements that say what names mean; the start of a function lies behind them.
_NAMES = (cst.Global, cst.Nonlocal)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an edit goes: `before` or `after` one statement. `scope` is the real scope there."""

    statement: Statement
    side: str
    scope: str | None


@dataclass(frozen=True, slots=True)
class _Branch:
    """One statement around another. `partial`: the inner one stands in another part of it."""

    node: cst.CSTNode
    word: str
    partial: bool


def find_places(
    source: Source, anchor: Anchor, spans: Mapping[str, Span] | None = None
) -> tuple[Place, ...]:
    """The places that the anchor describes, in order of the source; never an approximation.

    Several come back only where the anchor asks for all. `spans` says where the keys of the anchor
    (`in`, `which`) stand in the patch's file. Raises `PatchError` with state `not found`,
    `ambiguous`, `out of range`, `refused` or (for the anchor's own text) `parse`.
    """
    scope = _find_scope(source, anchor, spans or {})
    if anchor.position == "start":
        return (_start_of(source, anchor, scope),)
    pattern = _pattern(anchor.code or "", anchor)
    within = tuple(_pattern(text, anchor) for text in anchor.within)
    if not pattern.is_statement:
        raise _part_of_statement(source, anchor, pattern)
    depth = len(scope.path) if scope else 0
    found = [
        s
        for s in candidates(source, scope)
        if match(pattern, s.node) is not None and is_within(within, s.path[depth:])
    ]
    chosen = _choose(source, anchor, found, pattern, scope)
    return tuple(Place(s, anchor.position, scope_name(s)) for s in chosen)


def candidates(source: Source, scope: Statement | None) -> Iterator[Statement]:
    """The statements among which an anchor is sought: of its scope, or else of the whole file."""
    if scope is None:
        return walk_block(source.module, (), nested=True)
    return walk_definition(scope)


def _pattern(text: str, anchor: Anchor) -> Pattern:
    try:
        return parse_pattern(text)
    except PatternError as error:
        raise PatchError(
            f"`{text.strip()}` cannot be an anchor: {error}",
            state="parse",
            span=anchor.code_span or anchor.span,
        ) from None


def _find_scope(source: Source, anchor: Anchor, spans: Mapping[str, Span]) -> Statement | None:
    if anchor.scope is None:
        return None
    found = find_definitions(source.module, anchor.scope)
    if not found:
        raise ladder.missing_scope(source, anchor.scope, spans.get("in") or anchor.span)
    if anchor.which is not None:
        if not 1 <= anchor.which <= len(found):
            raise PatchError(
                f"`which: {anchor.which}` is out of range: `{source.file}` has "
                f"{_count(len(found), 'definition')} of `{anchor.scope}`",
                state="out of range",
                span=spans.get("which") or anchor.span,
                notes=[_definition_note(source, s) for s in found],
                file=source.file,
            )
        return found[anchor.which - 1]
    if len(found) > 1:
        raise PatchError(
            f"`{source.file}` has {len(found)} definitions of `{anchor.scope}`",
            state="ambiguous",
            span=spans.get("in") or anchor.span,
            notes=[_definition_note(source, s) for s in found],
            hints=("add `which: 1` (counted from the top) to choose one",),
            file=source.file,
        )
    return found[0]


def _definition_note(source: Source, statement: Statement) -> str:
    line = source.line_of(statement.node)
    assert isinstance(statement.node, Definition)
    decorators = [source.module.code_for_node(d).strip() for d in statement.node.decorators]
    marks = f" under {', '.join(f'`{d}`' for d in decorators)}" if decorators else ""
    return f"line {line}{marks}: `{source.line_text(line).strip()}`"


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


def is_future(node: cst.CSTNode) -> bool:
    """Whether a statement imports from `__future__`, before which only a docstring may stand."""
    if not isinstance(node, cst.ImportFrom) or not isinstance(node.module, cst.Name):
        return False
    return node.module.value == "__future__" and not node.relative


def _choose(
    source: Source,
    anchor: Anchor,
    found: Sequence[Statement],
    pattern: Pattern,
    scope: Statement | None,
) -> Sequence[Statement]:
    if not found:
        raise ladder.missing_anchor(source, anchor, pattern, scope)
    wanted = anchor.occurrence
    if anchor.of is not None and len(found) != anchor.of:
        raise _out_of_range(source, anchor, found, f"`of: {anchor.of}` was expected")
    if wanted is None and len(found) == 1:
        return found
    if wanted is None:
        raise _ambiguous(source, anchor, found)
    if wanted == 0:
        return found
    if wanted > len(found):
        raise _out_of_range(source, anchor, found, f"there is no `occurrence: {wanted}`")
    return [found[wanted - 1 if wanted > 0 else wanted]]


def _out_of_range(
    source: Source, anchor: Anchor, found: Sequence[Statement], problem: str
) -> PatchError:
    return PatchError(
        f"the anchor fits {_count(len(found), 'place')} in {_where(source, anchor)}: {problem}",
        state="out of range",
        span=anchor.code_span or anchor.span,
        notes=[place_note(source, s) for s in found],
        file=source.file,
    )


def _ambiguous(source: Source, anchor: Anchor, found: Sequence[Statement]) -> PatchError:
    hints = []
    scopes = list(dict.fromkeys(scope_name(s) for s in found))
    if anchor.scope is None and len(scopes) > 1:
        lines = [f"`{ladder.yaml_line('in', s)}`" for s in scopes if s]
        hints.append(f"name the scope: {' or '.join(lines)}")
    hints.append(f"or count the places: `occurrence: 1` with `of: {len(found)}`")
    hints.append("or name a statement around the right one with `within`")
    hints[0] = hints[0].removeprefix("or ")
    return PatchError(
        f"the anchor fits {len(found)} places in {_where(source, anchor)}",
        state="ambiguous",
        span=anchor.code_span or anchor.span,
        notes=[place_note(source, s) for s in found],
        hints=hints,
        file=source.file,
    )


def place_note(source: Source, statement: Statement) -> str:
    """A place with two lines of its context on either side."""
    line = source.line_of(statement.node)
    scope = scope_name(statement)
    where = f"line {line} in `{scope}`" if scope else f"line {line}, outside of functions"
    return "\n".join([f"{where}:", *source.shown(line - 2, line + 2)])


def _where(source: Source, anchor: Anchor) -> str:
    return f"`{anchor.scope}` of `{source.file}`" if anchor.scope else f"`{source.file}`"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _part_of_statement(source: Source, anchor: Anchor, pattern: Pattern) -> PatchError:
    return PatchError(
        f"`{pattern.text}` is a part of a statement: nothing can stand {anchor.position} it",
        state="refused",
        span=anchor.code_span or anchor.span,
        hints=(
            "anchor on a statement inside it, with "
            f"`{ladder.yaml_line('within', pattern.text)}` where that is not unique",
        ),
        file=source.file,
    )


def is_within(patterns: Sequence[Pattern], path: Path) -> bool:
    """Whether the statements around a path fit these headers, outermost first.

    A header means its own branch: what stands in the `else` of `if x:` is not within `if x:`,
    unless the next header names that `else`.
    """
    return _nest(patterns, list(_branches(path)))


def _nest(patterns: Sequence[Pattern], branches: Sequence[_Branch]) -> bool:
    if not patterns:
        return True
    for number, branch in enumerate(branches):
        rest = branches[number + 1 :]
        if not _fits(patterns[0], branch):
            continue
        if not branch.partial:
            if _nest(patterns[1:], rest):
                return True
            continue
        # `if x:`, then `else:` or `elif y:` of the same statement, which may be partial too.
        next_fits = len(patterns) > 1 and bool(rest) and _fits(patterns[1], rest[0])
        if next_fits and _nest(patterns[1:], rest):
            return True
    return False


def _fits(pattern: Pattern, branch: _Branch) -> bool:
    is_elif = pattern.text.startswith("elif")
    if is_elif != (branch.word == "elif"):
        return False
    return match(pattern, branch.node) is not None


def _branches(path: Path) -> Iterator[_Branch]:
    """The headers around a path: statements, and their `else`, `except`, `case` and the like."""
    for number, step in enumerate(path):
        node = step.node
        if isinstance(node, cst.Module | cst.BaseSuite | cst.SimpleStatementLine):
            continue
        above = path[number - 1] if number else None
        is_elif = (
            isinstance(node, cst.If)
            and above is not None
            and isinstance(above.node, cst.If)
            and above.field == "orelse"
        )
        partial = step.field not in ("body", "cases")
        yield _Branch(node, "elif" if is_elif else "", partial)
