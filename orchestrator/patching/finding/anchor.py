"""Finds the statements that an anchor describes: exactly those, or a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Anchor
from orchestrator.model.source import Span
from orchestrator.patching.finding import ladder
from orchestrator.patching.finding.moved import missing_scope, yaml_line
from orchestrator.patching.source import Source
from orchestrator.patching.structure.match import match
from orchestrator.patching.structure.pattern import Pattern, PatternError, parse_pattern
from orchestrator.patching.structure.place import Place
from orchestrator.patching.structure.walk import (
    Definition,
    Path,
    Statement,
    find_definitions,
    scope_name,
    walk_block,
    walk_definition,
)


@dataclass(frozen=True, slots=True)
class _Branch:
    """One statement around another. `partial`: the inner one stands in another part of it."""

    node: cst.CSTNode
    word: str
    partial: bool


def find_statements(source: Source, anchor: Anchor, scope: Statement | None) -> tuple[Place, ...]:
    """The places of an anchor that names a statement, in order of the source.

    Several come back only where the anchor asks for all. Raises `PatchError` with state
    `not found`, `ambiguous`, `out of range`, `refused` or (for the anchor's own text) `parse`.
    """
    pattern = make_pattern(anchor.code or "", anchor)
    if not pattern.is_statement:
        raise _part_of_statement(source, anchor, pattern)
    side = "replace" if anchor.position in ("replace", "delete") else anchor.position
    if side == "replace" and pattern.is_header:
        raise _header_only(source, anchor, pattern)
    inside = within(anchor, scope)
    found = [
        Place(s, side, scope_name(s), bindings=bindings)
        for s in candidates(source, scope)
        if (bindings := match(pattern, s.node)) is not None and inside(s)
    ]
    if not found:
        raise ladder.missing_anchor(source, anchor, pattern, scope)
    return choose(source, anchor, found)


def within(anchor: Anchor, scope: Statement | None) -> Callable[[Statement], bool]:
    """Whether a statement of the scope stands within what the anchor's `within` names."""
    patterns = tuple(make_pattern(text, anchor) for text in anchor.within)
    depth = len(scope.path) if scope else 0
    return lambda statement: is_within(patterns, statement.path[depth:])


def candidates(source: Source, scope: Statement | None) -> Iterator[Statement]:
    """The statements among which an anchor is sought: of its scope, or else of the whole file."""
    if scope is None:
        return walk_block(source.module, (), nested=True)
    return walk_definition(scope)


def make_pattern(text: str, anchor: Anchor) -> Pattern:
    """The anchor text as a pattern; raises `PatchError` with state `parse`."""
    try:
        return parse_pattern(text)
    except PatternError as error:
        raise PatchError(
            f"`{text.strip()}` cannot be an anchor: {error}",
            state="parse",
            span=anchor.code_span or anchor.span,
        ) from None


def find_scope(source: Source, anchor: Anchor, spans: Mapping[str, Span]) -> Statement | None:
    """The one definition that the anchor's `in` names; `None` for the module.

    `spans` says where the keys of the anchor (`in`, `which`) stand in the patch's file.
    """
    if anchor.scope is None:
        return None
    found = find_definitions(source.module, anchor.scope)
    if not found:
        raise missing_scope(source, anchor, spans.get("in") or anchor.span)
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


def choose(
    source: Source, anchor: Anchor, found: Sequence[Place], *, all_of_them: bool = False
) -> tuple[Place, ...]:
    """Those of the found places that `occurrence` and `of` select; all, only where asked for."""
    wanted = anchor.occurrence
    if anchor.of is not None and len(found) != anchor.of:
        raise _out_of_range(source, anchor, found, f"`of: {anchor.of}` was expected")
    if wanted == 0 or (wanted is None and (all_of_them or len(found) == 1)):
        return tuple(found)
    if wanted is None:
        raise _ambiguous(source, anchor, found)
    if wanted > len(found):
        raise _out_of_range(source, anchor, found, f"there is no `occurrence: {wanted}`")
    return (found[wanted - 1 if wanted > 0 else wanted],)


def _out_of_range(
    source: Source, anchor: Anchor, found: Sequence[Place], problem: str
) -> PatchError:
    return PatchError(
        f"the anchor fits {_count(len(found), 'place')} in {_where(source, anchor)}: {problem}",
        state="out of range",
        span=anchor.code_span or anchor.span,
        notes=_place_notes(source, found),
        file=source.file,
    )


def _ambiguous(source: Source, anchor: Anchor, found: Sequence[Place]) -> PatchError:
    hints = []
    scopes = list(dict.fromkeys(p.scope for p in found))
    if anchor.scope is None and len(scopes) > 1:
        lines = [f"`{yaml_line('in', s)}`" for s in scopes if s]
        hints.append(f"name the scope: {' or '.join(lines)}")
    hints.append(f"or count the places: `occurrence: 1` with `of: {len(found)}`")
    hints.append("or name a statement around the right one with `within`")
    hints[0] = hints[0].removeprefix("or ")
    return PatchError(
        f"the anchor fits {len(found)} places in {_where(source, anchor)}",
        state="ambiguous",
        span=anchor.code_span or anchor.span,
        notes=_place_notes(source, found),
        hints=hints,
        file=source.file,
    )


def _place_notes(source: Source, found: Sequence[Place]) -> list[str]:
    """Every place; several expressions of one statement are told as one."""
    notes = Counter(place_note(source, p.statement) for p in found)
    return [
        note if count == 1 else note.replace(":", f", {count} times:", 1)
        for note, count in notes.items()
    ]


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


def _header_only(source: Source, anchor: Anchor, pattern: Pattern) -> PatchError:
    return PatchError(
        f"`{pattern.text}` is only the header of a statement: its body would go with it unseen",
        state="refused",
        span=anchor.code_span or anchor.span,
        hints=("write the body too, as `$$$BODY` in a line of its own, indented",),
        file=source.file,
    )


def _part_of_statement(source: Source, anchor: Anchor, pattern: Pattern) -> PatchError:
    beside = anchor.position in ("before", "after")
    what = f"nothing can stand {anchor.position} it" if beside else "it cannot go alone"
    return PatchError(
        f"`{pattern.text}` is a part of a statement: {what}",
        state="refused",
        span=anchor.code_span or anchor.span,
        hints=(
            "anchor on a statement inside it, with "
            f"`{yaml_line('within', pattern.text)}` where that is not unique",
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
