"""From a file's bytes and the edits wanted in it to its new bytes: all of them, or an error."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import PatchError
from orchestrator.model.patch import Anchor, Edit, Insert, Patch, Probe
from orchestrator.model.plan import Insertion, Site
from orchestrator.model.source import Span
from orchestrator.patching.anchor import Place, find_places
from orchestrator.patching.captures import check_captures
from orchestrator.patching.edits import (
    Made,
    make_import,
    make_insert,
    make_probe,
    stands_already,
)
from orchestrator.patching.proofs import prove
from orchestrator.patching.refusals import refuse_bound_names, refuse_place, refuse_unreachable
from orchestrator.patching.removal import find_ours
from orchestrator.patching.source import Source, read_source
from orchestrator.patching.splice import splice
from orchestrator.patching.standing import Standing, class_of, find_standing, may_clear_locals


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
class Fitted:
    """One wanted edit that fits a source: what it makes, at which sites."""

    wanted: Wanted
    made: tuple[Made, ...]
    sites: tuple[Site, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edited:
    """A file with all edits in it; `insertions` taken out give the original."""

    data: bytes
    sha256: str
    insertions: tuple[Insertion, ...]
    sites: tuple[Site, ...]
    warnings: tuple[str, ...]


def edit_file(data: bytes, wanted: Sequence[Wanted]) -> Edited:
    """Make all the wanted edits, or raise `PatchError` for the first that does not fit.

    The order of edits at one place is that of `wanted`; otherwise it does not matter. Every
    result has passed the proofs of `orchestrator.patching.proofs`.
    """
    source = read_source(data, wanted[0].file if wanted else "")
    return edit_source(source, [fit(source, w) for w in wanted])


def fit(source: Source, wanted: Wanted) -> Fitted:
    """Find the places of one edit and check everything that can be checked of it alone.

    Raises `PatchError`; its state tells a place that is not there from one that may not be used.
    """
    try:
        _refuse_patched(source, wanted)
        places = find_places(source, wanted.anchor, _spans(wanted))
        parts = [_fit_place(source, wanted, place) for place in places]
    except PatchError as error:
        error.file = error.file or source.file
        raise
    sites = tuple(site for _, site, _ in parts)
    warnings = dict.fromkeys(w for _, _, found in parts for w in found)
    return Fitted(wanted, tuple(made for made, _, _ in parts), sites, tuple(warnings))


def edit_source(source: Source, fitted: Sequence[Fitted]) -> Edited:
    """The source with all these edits, proven; raises `PatchError` with state `proof`."""
    if not fitted:
        return Edited(source.data, _sha256(source.data), (), (), ())
    made = [m for f in fitted for m in f.made]
    probes = [f for f in fitted if isinstance(f.wanted.edit.action, Probe)]
    warnings = [w for f in fitted for w in f.warnings]
    if probes:
        changes = [m.change for f in probes for m in f.made]
        first = make_import(source, probes[0].wanted.package, changes)
        if first.moves:
            warnings.append(
                f"`{source.file}`: the import of the runtime has its own line: the lines below move"
            )
        made.insert(0, first)
    after, insertions = splice(source, [m.change for m in made])
    warnings += prove(
        source,
        after,
        insertions,
        probes_only=len(probes) == len(fitted),
        lines_stay=not any(m.moves for m in made),
    )
    sites = tuple(s for f in fitted for s in f.sites)
    return Edited(after, _sha256(after), insertions, sites, tuple(dict.fromkeys(warnings)))


def _spans(wanted: Wanted) -> dict[str, Span]:
    """Where the keys of the wanted alternative stand in the patch's file."""
    number = next((n for n, e in enumerate(wanted.patch.edits) if e.site == wanted.edit.site), 0)
    for where in (f"edits.{number}.where.{wanted.alternative - 1}.", f"edits.{number}.where."):
        found = {k: s for k, s in wanted.patch.spans.items() if k.startswith(where)}
        if found:
            return {k.removeprefix(where): s for k, s in found.items()}
    return {}


def _refuse_patched(source: Source, wanted: Wanted) -> None:
    ours = find_ours(source)
    if not ours:
        return
    same = [o for o in ours if o.site == wanted.edit.site]
    line = source.line_of((same or ours)[0].statement.node)
    what = f"the probe `{wanted.edit.site}`" if same else "a statement of sgldbg"
    raise PatchError(
        f"{what} already stands in `{source.file}`, line {line}",
        state="already there",
        span=wanted.anchor.span,
        hints=("end the session that put it there: `sgldbg status`, then `sgldbg revert`",),
        file=source.file,
    )


def _fit_place(source: Source, wanted: Wanted, place: Place) -> tuple[Made, Site, list[str]]:
    span = wanted.anchor.code_span or wanted.anchor.span
    action = wanted.edit.action
    refuse_place(source, place, span)
    standing = find_standing(source, place)
    if isinstance(action, Insert) and stands_already(place, action):
        raise _inserted_already(source, wanted, place)
    refuse_unreachable(source, place, standing, span)
    warnings: list[str] = []
    if isinstance(action, Insert):
        made = make_insert(source, place, action)
    else:
        made, warnings = _fit_probe(source, wanted, place, standing)
    line = source.line_of(place.statement.node)
    if made.moves:
        warnings.append(
            f"`{source.file}`: `{wanted.edit.site}` has its own line at line {line}: "
            "the lines below move"
        )
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
    return made, site, warnings


def _fit_probe(
    source: Source, wanted: Wanted, place: Place, standing: Standing | None
) -> tuple[Made, list[str]]:
    probe = wanted.edit.action
    assert isinstance(probe, Probe)
    scopes = place.statement.definitions()
    copies = not scopes or not hasattr(scopes[-1], "params")
    used = frozenset({"_sgldbg", "locals", "dict"} if copies else {"_sgldbg", "locals"})
    refuse_bound_names(source, standing, place, used, wanted.anchor.span)
    warnings = []
    if copies:
        line = source.line_of(place.statement.node)
        warnings.append(f"line {line} of `{source.file}` runs once, when the module is imported")
    if standing is not None:
        warnings += check_captures(probe, standing)
    return make_probe(place, wanted.edit.site, copies=copies), warnings


def _class_name(place: Place) -> str | None:
    """The innermost class around a place, told from the tree where there are no tables."""
    classes = [d for d in place.statement.definitions() if not hasattr(d, "params")]
    return classes[-1].name.value if classes else None


def _inserted_already(source: Source, wanted: Wanted, place: Place) -> PatchError:
    line = source.line_of(place.statement.node)
    return PatchError(
        f"the code to insert already stands {place.side} line {line} of `{source.file}`",
        state="already there",
        span=wanted.anchor.span,
        file=source.file,
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
