"""Checks expressions against the place of a probe that stands in a patched file already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Probe
from orchestrator.patching.making.removal import find_ours
from orchestrator.patching.making.taps import is_tap_of, names_shown
from orchestrator.patching.scope.captures import check_captures, free_names
from orchestrator.patching.scope.standing import Standing, class_of, find_standing, mangled
from orchestrator.patching.source import Source, read_source
from orchestrator.patching.structure.place import Place
from orchestrator.patching.structure.walk import Statement, scope_name, walk_block


def check_question(data: bytes, file: str, site: str, probe: Probe) -> tuple[str, ...]:
    """Warnings about the expressions at a site; raises `PatchError` with state `capture`.

    The probe's own kind (`takes_value`) is that of the site, whatever `probe` says. State
    `not found`: the site is not in the file.
    """
    return check_placed(read_source(data, file), site, probe, all_shown=True)


def check_placed(source: Source, site: str, probe: Probe, *, all_shown: bool) -> tuple[str, ...]:
    """The same, in a source that was read, at every place where the site stands.

    `all_shown`: refuse names that are bound there but not among those that the site shows.
    """
    places = list(_places(source, site))
    if not places:
        raise PatchError(f"`{site}` does not stand in `{source.file}`", state="not found",
                         file=source.file)  # fmt: skip
    return tuple(w for place in places for w in _check(source, site, probe, all_shown, *place))


def _check(
    source: Source,
    site: str,
    probe: Probe,
    all_shown: bool,
    statement: Statement,
    takes_value: bool,
) -> tuple[str, ...]:
    standing = find_standing(source, Place(statement, "before", scope_name(statement)))
    shown = names_shown(statement.node, site)
    if standing is None:
        return ()
    asked = replace(probe, takes_value=takes_value)
    inner = "a comprehension or lambda" if shown == () and takes_value else None
    if shown is not None and inner is None:
        _refuse_unbound(source, site, standing, shown)
        if all_shown:
            _refuse_not_shown(source, site, asked, standing, shown)
    return check_captures(asked, standing, inner)


def _refuse_unbound(source: Source, site: str, standing: Standing, shown: Sequence[str]) -> None:
    """Where a site gives names one by one, reading one that is not bound raises in the server."""
    sure = standing.certain or {}
    lost = [name for name in shown if not sure.get(name)]
    if lost:
        raise PatchError(
            f"with all edits in place, `{lost[0]}` may be unbound where `{site}` stands in "
            f"{standing.title}, which uses the dict of its names itself",
            state="conflict",
            file=source.file,
        )


def _refuse_not_shown(
    source: Source, site: str, asked: Probe, standing: Standing, shown: Sequence[str]
) -> None:
    missing = sorted(
        name
        for name in free_names(asked)
        if mangled(name, class_of(standing)) in (standing.state or {})
        and mangled(name, class_of(standing)) not in shown
    )
    if missing:
        raise PatchError(
            f"the probe at `{site}` does not show `{missing[0]}`: its function uses the dict "
            "of its names itself",
            state="capture",
            notes=(f"it shows {', '.join(f'`{n}`' for n in shown) or 'nothing'}",),
            file=source.file,
        )


def _places(source: Source, site: str) -> Iterator[tuple[Statement, bool]]:
    ours = [o for o in find_ours(source) if o.site == site]
    for one in ours:
        yield one.statement, isinstance(getattr(one.statement.node, "value", None), cst.Call)
    whole = {id(one.statement.node) for one in ours}
    for statement in walk_block(source.module, (), nested=True):
        if id(statement.node) not in whole and is_tap_of(statement.node, site):
            yield statement, True
