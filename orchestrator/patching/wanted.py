"""One edit that is wanted of a file: where it fits, and what it makes there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from orchestrator.errors import PatchError, StandsAlreadyError
from orchestrator.model.patch import (
    Anchor,
    Decorate,
    Delete,
    Edit,
    Import,
    Insert,
    Patch,
    Probe,
    Replace,
)
from orchestrator.model.plan import Site
from orchestrator.model.source import Span
from orchestrator.patching.checking import check_alone
from orchestrator.patching.finding.anchor import candidates, find_scope, within
from orchestrator.patching.finding.places import find_places
from orchestrator.patching.finding.refusals import (
    is_reached,
    refuse_bound_names,
    refuse_place,
    refuse_unreachable,
)
from orchestrator.patching.making.edits import (
    Made,
    make_decorator,
    make_insert,
    make_probe,
    parse_import,
)
from orchestrator.patching.making.presence import (
    find_imports,
    find_instead,
    find_replaced,
    is_decorated,
    stands_already,
)
from orchestrator.patching.making.removal import find_ours, find_taps
from orchestrator.patching.making.replacing import make_replace
from orchestrator.patching.scope.captures import sure_names
from orchestrator.patching.scope.standing import Standing, class_of, find_standing, may_clear_locals
from orchestrator.patching.source import Source
from orchestrator.patching.structure.place import Place
from orchestrator.patching.structure.walk import Statement


@dataclass(frozen=True, slots=True)
class Wanted:
    """One edit of one patch at one of its alternatives (counted from 1)."""

    patch: Patch
    package: str
    file: str
    edit: Edit
    anchor: Anchor
    alternative: int = 1


@dataclass(frozen=True, slots=True)
class Imported:
    """One import that is wanted, and where the module has it already."""

    node: cst.BaseSmallStatement
    there: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """One wanted edit that fits a source: what it makes, at which sites; a site for each."""

    wanted: Wanted
    made: tuple[Made, ...]
    sites: tuple[Site, ...]
    warnings: tuple[str, ...]
    imports: tuple[Imported, ...] = ()
    # Why its captures cannot work, unless other edits of the patch bring what they need.
    doubt: PatchError | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """What one wanted edit makes at one of its places."""

    made: Made
    site: Site
    warnings: tuple[str, ...]
    doubt: PatchError | None


def fit(source: Source, wanted: Wanted) -> Fitted:
    """Find the places of one edit and check everything that can be checked of it alone.

    Raises `PatchError`; its state tells a place that is not there from one that may not be used,
    and `StandsAlreadyError` where nothing is left to do.
    """
    try:
        _refuse_patched(source, wanted)
        if isinstance(wanted.edit.action, Import):
            return _fit_import(source, wanted, wanted.edit.action)
        places = _find(source, wanted)
        # Of several places one that no way leads to is no reason to refuse the others.
        several = len(places) > 1
        reached = [p for p in places if not several or is_reached(source, p)] or places[:1]
        _refuse_inserted(source, wanted, reached)
        parts = [_fit_place(source, wanted, place) for place in reached]
    except PatchError as error:
        error.file = error.file or source.file
        raise
    return Fitted(
        wanted,
        tuple(part.made for part in parts),
        tuple(part.site for part in parts),
        tuple(
            dict.fromkeys(
                (
                    *_left_alone(source, wanted, places, reached),
                    *(w for part in parts for w in part.warnings),
                )
            )
        ),
        doubt=next((part.doubt for part in parts if part.doubt), None),
    )


def _left_alone(
    source: Source, wanted: Wanted, places: Sequence[Place], reached: Sequence[Place]
) -> Iterator[str]:
    for place in places:
        if place not in reached:
            line = source.line_of(place.statement.node)
            yield (
                f"`{source.file}`: `{wanted.edit.site}` leaves line {line} alone: "
                "no way leads there"
            )


def _find(source: Source, wanted: Wanted) -> tuple[Place, ...]:
    """The places of an edit; where what replaces them stands already, that is the error."""
    action, anchor = wanted.edit.action, wanted.anchor
    try:
        places = find_places(source, anchor, _spans(wanted))
    except PatchError as error:
        if error.state != "not found" or not isinstance(action, Replace):
            raise
        scope = find_scope(source, anchor, _spans(wanted))
        inside = within(anchor, scope)
        statements = [s for s in candidates(source, scope) if inside(s)]
        there = find_instead(action, anchor.code or "", statements)
        _refuse_there(source, wanted, there, (anchor.of if anchor.occurrence == 0 else 1) or 1)
        raise
    if isinstance(action, Replace):
        there = find_replaced(source, action, anchor.code or "", places)
        _refuse_there(source, wanted, there, len(places))
    return places


def _refuse_there(
    source: Source, wanted: Wanted, there: Sequence[cst.CSTNode], needed: int
) -> None:
    if there:
        kind = StandsAlreadyError if len(there) >= needed else PatchError
        raise kind(
            f"the code that replaces stands already in line {source.line_of(there[0])} of "
            f"`{source.file}`",
            state="already there",
            span=wanted.anchor.span,
            file=source.file,
        ) from None


def _fit_import(source: Source, wanted: Wanted, action: Import) -> Fitted:
    """Where the module has the imports already is noted; they may be left out."""
    if not source.module.body:
        raise PatchError(
            f"`{source.file}` holds no statement", state="not found", span=wanted.anchor.span
        )
    imports = tuple(Imported(node, find_imports(source, node)) for node in parse_import(action))
    site = Site(
        site=wanted.edit.site,
        patch=wanted.patch.name,
        file=source.file,
        scope=None,
        line=1,
        text=source.line_text(1),
        alternative=wanted.alternative,
    )
    return Fitted(wanted, (), (site,), (), imports)


def _spans(wanted: Wanted) -> dict[str, Span]:
    """Where the keys of the wanted alternative stand in the patch's file."""
    number = next((n for n, e in enumerate(wanted.patch.edits) if e.site == wanted.edit.site), 0)
    for where in (f"edits.{number}.where.{wanted.alternative - 1}.", f"edits.{number}.where."):
        found = {k: s for k, s in wanted.patch.spans.items() if k.startswith(where)}
        if found:
            return {k.removeprefix(where): s for k, s in found.items()}
    return {}


def _refuse_patched(source: Source, wanted: Wanted) -> None:
    ours = [(o.site, source.line_of(o.statement.node)) for o in find_ours(source)]
    ours += [(tap.site, tap.line) for tap in find_taps(source)]
    if not ours:
        return
    same = [o for o in ours if o[0] == wanted.edit.site]
    line = (same or ours)[0][1]
    what = f"the probe `{wanted.edit.site}`" if same else "a statement of sgldbg"
    raise PatchError(
        f"{what} already stands in `{source.file}`, line {line}",
        state="already there",
        span=wanted.anchor.span,
        hints=("end the session that put it there: `sgldbg status`, then `sgldbg revert --all`",),
        file=source.file,
    )


def _fit_place(source: Source, wanted: Wanted, place: Place) -> _Part:
    span = wanted.anchor.code_span or wanted.anchor.span
    action = wanted.edit.action
    refuse_place(source, place, span)
    standing = find_standing(source, place)
    if place.side != "replace":
        refuse_unreachable(source, place, standing, span)
    made, warnings = _make(source, wanted, place, standing)
    line = source.line_of(place.statement.node)
    if made.moves:
        warnings.append(_moves(source, wanted, line))
    doubt = None
    if isinstance(action, Probe) and standing is not None:
        helped = wanted.patch.changes_code_of(source.file)
        told, doubt = check_alone(action, standing, _inner(place), may_be_helped=helped)
        warnings += told
    clears = isinstance(action, Probe) and standing is not None and may_clear_locals(standing)
    site = Site(
        site=wanted.edit.site,
        patch=wanted.patch.name,
        file=source.file,
        scope=place.scope,
        line=line,
        text=source.line_text(line),
        alternative=wanted.alternative,
        class_name=class_of(standing) if standing else _class_name(place),
        clear_locals=clears,
    )
    return _Part(made, site, tuple(warnings), doubt)


def _inner(place: Place) -> str | None:
    return place.expression.inner if place.expression else None


def _moves(source: Source, wanted: Wanted, line: int) -> str:
    where = f"`{source.file}`: `{wanted.edit.site}`"
    if isinstance(wanted.edit.action, Replace | Delete):
        return f"{where} changes the number of lines at line {line}: the lines below move"
    return f"{where} has its own line at line {line}: the lines below move"


def _make(
    source: Source, wanted: Wanted, place: Place, standing: Standing | None
) -> tuple[Made, list[str]]:
    match wanted.edit.action:
        case Insert() as insert:
            return make_insert(source, place, insert), []
        case Replace() | Delete() as action:
            return make_replace(source, place, action), []
        case Decorate() as decorate:
            return make_decorator(place, decorate), []
        case Probe() as probe:
            return _fit_probe(source, wanted, probe, place, standing)
        case Import():
            raise AssertionError("an import has no place of its own")


def _fit_probe(
    source: Source, wanted: Wanted, probe: Probe, place: Place, standing: Standing | None
) -> tuple[Made, list[str]]:
    inner = _inner(place)
    shown, used = _shown(place, probe, standing, inner)
    refuse_bound_names(source, standing, place, used | {"_sgldbg"}, wanted.anchor.span)
    line = source.line_of(place.statement.node)
    warnings = []
    if "dict" in used:
        warnings.append(f"line {line} of `{source.file}` runs once, when the module is imported")
    elif shown.startswith("{") and not inner and standing is not None:
        warnings.append(
            f"{standing.title} uses the dict of its names itself: the probe at line {line} shows "
            "only names that its expressions have and that every way binds"
        )
    made = make_probe(place, wanted.edit.site, shown=shown, takes_value=probe.takes_value)
    return made, warnings


def _shown(
    place: Place, probe: Probe, standing: Standing | None, inner: str | None
) -> tuple[str, frozenset[str]]:
    """The code that gives a probe the names of its place, and the global names that it uses."""
    if inner:
        # Inside a lambda or comprehension `locals()` would show other names in each Python.
        return "{}", frozenset()
    scopes = place.statement.definitions()
    if not scopes or not hasattr(scopes[-1], "params"):
        return "dict(locals())", frozenset({"dict", "locals"})
    if standing is None or may_clear_locals(standing):
        return "locals()", frozenset({"locals"})
    # Up to Python 3.12 each call of `locals()` renews the one dict that the function holds, too.
    names = sure_names(probe, standing)
    return f"{{{', '.join(f'{n!a}: {n}' for n in names)}}}".replace("'", '"'), frozenset({"locals"})


def _class_name(place: Place) -> str | None:
    """The innermost class around a place, told from the tree where there are no tables."""
    classes = [d for d in place.statement.definitions() if not hasattr(d, "params")]
    return classes[-1].name.value if classes else None


def _refuse_inserted(source: Source, wanted: Wanted, places: Sequence[Place]) -> None:
    action, position = wanted.edit.action, wanted.anchor.position
    if isinstance(action, Insert):
        there = [p for p in places if stands_already(p, action, position)]
    elif isinstance(action, Decorate):
        there = [p for p in places if is_decorated(p, action)]
    else:
        return
    if not there:
        return
    kind = StandsAlreadyError if len(there) == len(places) else PatchError
    line = source.line_of(there[0].statement.node)
    what = "the code to insert already stands"
    where = {"start": "at the start of", "end": "at the end of"}.get(position)
    if isinstance(action, Decorate):
        what, where = "the decorator already stands", "above"
    elif where is not None:
        where = f"{where} `{there[0].scope}`, at"
    raise kind(
        f"{what} {where or there[0].side} line {line} of `{source.file}`",
        state="already there",
        span=wanted.anchor.span,
        file=source.file,
    )
