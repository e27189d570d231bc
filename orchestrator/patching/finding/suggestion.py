"""The anchor that a user would write for a line: its scope and a small pattern that is unique."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import MAX_CODE, Anchor
from orchestrator.patching.finding.ladder import any_arguments, target_only, text_of
from orchestrator.patching.finding.places import find_places
from orchestrator.patching.finding.refusals import refuse_place, refuse_unreachable
from orchestrator.patching.scope.names import names_bound
from orchestrator.patching.scope.standing import find_standing
from orchestrator.patching.source import Source, read_source
from orchestrator.patching.structure.header import header_of
from orchestrator.patching.structure.pattern import Pattern
from orchestrator.patching.structure.place import Place
from orchestrator.patching.structure.walk import (
    Definition,
    Statement,
    find_definitions,
    scope_name,
    walk_block,
)

_TERMINAL = (cst.Return, cst.Raise, cst.Break, cst.Continue)
# So many names are worth a look at first; more are the user's to choose.
_CAPTURES = 4


@dataclass(frozen=True, slots=True)
class Suggestion:
    """An anchor for a line, what to capture there, and in which of the other sources it fits.

    `example` is the least of the file that the anchor fits: its function, in its classes.
    """

    anchor: Anchor
    line: int
    text: str
    captures: tuple[str, ...]
    fits: tuple[bool, ...]
    example: bytes


def suggest(data: bytes, file: str, line: int, others: Sequence[bytes]) -> Suggestion:
    """An anchor at this line (from 1) of a file, as loose as it may be where it fits most others.

    Raises `PatchError` where no statement stands there, or none that can be an anchor.
    """
    source = read_source(data, file)
    statement = _statement_at(source, line)
    sources = [_read(other, file) for other in others]
    best: tuple[int, Anchor, tuple[bool, ...]] | None = None
    for phase in (_plain, _chosen, _counted):
        for anchor in phase(source, statement):
            if not _fits(source, anchor, statement):
                continue
            fits = tuple(other is not None and _fits(other, anchor, None) for other in sources)
            if best is None or sum(fits) > best[0]:
                best = (sum(fits), anchor, fits)
        if best is not None:
            break
    if best is None:
        if not any(_texts(source, statement)):
            raise _too_long(source, statement)
        raise PatchError(
            f"no anchor for line {line} of `{file}` tells it from others",
            state="ambiguous",
            file=file,
        )
    side = "after" if best[1].position == "after" else "before"
    place = Place(statement, side, scope_name(statement))
    refuse_place(source, place, None)
    refuse_unreachable(source, place, find_standing(source, place), None)
    at = source.line_of(statement.node)
    return Suggestion(
        best[1],
        at,
        source.line_text(at).strip(),
        _captures(source, place),
        best[2],
        _example(source, statement),
    )


def _too_long(source: Source, statement: Statement) -> PatchError:
    line = source.line_of(statement.node)
    return PatchError(
        f"the code in line {line} of `{source.file}` has more than {MAX_CODE:,} characters, too "
        "many for an anchor",
        state="refused",
        hints=("name the line of a statement beside it",),
        file=source.file,
    )


def _read(data: bytes, file: str) -> Source | None:
    try:
        return read_source(data, file) if data else None
    except PatchError:
        return None


def _statement_at(source: Source, line: int) -> Statement:
    """The statement that begins on this line, or else whose code or header spans it."""
    behind: int | None = None
    spanning: Statement | None = None
    for statement in walk_block(source.module, (), nested=True):
        first = source.line_of(statement.node)
        if first == line:
            return statement
        above, lines = _height(source, statement)
        if first - above <= line < first + lines:
            spanning = statement
        if first > line:
            behind = min(first, behind or first)
    if spanning is not None:
        return spanning
    raise PatchError(
        f"no statement stands in line {line} of `{source.file}`",
        state="not found",
        hints=(f"the next one begins in line {behind}",) if behind else (),
        file=source.file,
    )


def _height(source: Source, statement: Statement) -> tuple[int, int]:
    """How many lines of decorators stand above a statement; how many it, or its header, takes."""
    node = statement.node
    if isinstance(node, cst.BaseSmallStatement):
        return 0, source.module.code_for_node(node).rstrip("\r\n").count("\n") + 1
    lines = header_of(source.module, node).count("\n") + 1
    decorators = node.decorators if isinstance(node, Definition) else ()
    if not isinstance(node, Definition) or not decorators:
        return 0, lines
    first = decorators[0].with_changes(leading_lines=())
    above = (first, *decorators[1:], *node.lines_after_decorators)
    return sum(source.module.code_for_node(n).count("\n") for n in above), lines


def _plain(source: Source, statement: Statement) -> Iterator[Anchor]:
    """Candidates, from a call with any arguments to the exact code, then by target alone.

    A target alone comes last, since it would fit another statement that sets the same name: it is
    taken only where it fits more releases.
    """
    node = statement.node
    position = "before" if isinstance(node, _TERMINAL) or not statement.is_small else "after"
    for text in _texts(source, statement):
        yield Anchor(source.file, scope_name(statement), position, text)


def _chosen(source: Source, statement: Statement) -> Iterator[Anchor]:
    """The same, in one of several definitions of one name."""
    scope = scope_name(statement)
    count = len(find_definitions(source.module, scope)) if scope else 0
    for anchor in _plain(source, statement) if count > 1 else ():
        for which in range(1, count + 1):
            yield replace(anchor, which=which)


def _counted(source: Source, statement: Statement) -> Iterator[Anchor]:
    """The exact code, told from equal code by its number."""
    for anchor in (*_plain(source, statement), *_chosen(source, statement)):
        try:
            places = find_places(source, replace(anchor, occurrence=0))
        except PatchError:
            continue
        for number, place in enumerate(places, 1):
            if place.statement.node is statement.node:
                yield replace(anchor, occurrence=number, of=len(places))


def _texts(source: Source, statement: Statement) -> Iterator[str]:
    """What may name a statement, but for texts that no patch may hold."""
    return (text for text in _all_texts(source, statement) if len(text) <= MAX_CODE)


def _all_texts(source: Source, statement: Statement) -> Iterator[str]:
    node = statement.node
    if not isinstance(node, cst.BaseSmallStatement):
        yield header_of(source.module, node)
        return
    exact = source.module.code_for_node(node).strip().rstrip("; ")
    loose = any_arguments(node)
    if loose is not None:
        yield text_of(source, Pattern(exact, loose, is_header=False))
    yield exact
    target = target_only(node)
    if target is not None:
        yield text_of(source, Pattern(exact, target, is_header=False))


def _fits(source: Source, anchor: Anchor, statement: Statement | None) -> bool:
    """Whether the anchor fits exactly one place, and that statement where one is given."""
    try:
        places = find_places(source, anchor)
    except PatchError:
        return False
    return len(places) == 1 and (statement is None or places[0].statement.node is statement.node)


def _captures(source: Source, place: Place) -> tuple[str, ...]:
    """Names that the statement binds or uses and that are surely bound there."""
    standing = find_standing(source, place)
    reading = source.reading
    if standing is None or reading is None:
        return ()
    node = reading.statements[source.place_of(place.statement.node)]
    sure = {name for name, known in (standing.state or {}).items() if known}
    if place.statement.is_small:
        named = [name for name, _ in names_bound(node)]
        named += [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    else:
        named = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    return tuple(dict.fromkeys(n for n in named if n in sure and n != "self"))[:_CAPTURES]


def _example(source: Source, statement: Statement) -> bytes:
    scopes = statement.definitions()
    functions = [i for i, scope in enumerate(scopes) if isinstance(scope, cst.FunctionDef)]
    if not functions:
        return source.data
    node: Definition = scopes[functions[0]].with_changes(leading_lines=())
    for owner in reversed(scopes[: functions[0]]):
        block = owner.body.with_changes(body=[node]) if isinstance(
            owner.body, cst.IndentedBlock
        ) else owner.body  # fmt: skip
        node = owner.with_changes(body=block, decorators=(), leading_lines=())
    module = source.module.with_changes(body=[node], header=(), footer=())
    return bytes(module.bytes)
