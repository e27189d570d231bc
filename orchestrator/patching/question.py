"""Checks expressions against the place of a probe that stands in a patched file already."""

from __future__ import annotations

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Probe
from orchestrator.patching.anchor import Place
from orchestrator.patching.captures import check_captures, free_names
from orchestrator.patching.removal import find_ours
from orchestrator.patching.source import Source, read_source
from orchestrator.patching.standing import class_of, find_standing, mangled
from orchestrator.patching.structure.walk import Statement, scope_name, walk_block
from orchestrator.patching.taps import is_tap_of, names_shown


def check_question(data: bytes, file: str, site: str, probe: Probe) -> tuple[str, ...]:
    """Warnings about the expressions at a site; raises `PatchError` with state `capture`.

    The probe's own kind (`takes_value`) is that of the site, whatever `probe` says. State
    `not found`: the site is not in the file.
    """
    source = read_source(data, file)
    statement, takes_value = _find(source, site)
    place = Place(statement, "before", scope_name(statement))
    standing = find_standing(source, place)
    shown = names_shown(statement.node, site)
    if standing is None:
        return ()
    asked = Probe(probe.capture, probe.once_per, when=probe.when, takes_value=takes_value)
    inner = "what it stands in" if shown == () and takes_value else None
    if shown is not None and inner is None:
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
                file=file,
            )
    return check_captures(asked, standing, inner)


def _find(source: Source, site: str) -> tuple[Statement, bool]:
    for ours in find_ours(source):
        if ours.site == site:
            node = ours.statement.node
            call = getattr(node, "value", None)
            return ours.statement, isinstance(call, cst.Call)
    for statement in walk_block(source.module, (), nested=True):
        if is_tap_of(statement.node, site):
            return statement, True
    raise PatchError(f"`{site}` does not stand in `{source.file}`", state="not found",
                     file=source.file)  # fmt: skip
