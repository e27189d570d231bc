"""Checks a probe's captures alone, and again where other edits bring and take names."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.errors import PatchError
from orchestrator.model.patch import Probe
from orchestrator.patching.question import check_placed
from orchestrator.patching.scope.captures import check_captures
from orchestrator.patching.scope.standing import Standing
from orchestrator.patching.source import read_source


def check_alone(
    probe: Probe, standing: Standing, inner: str | None, *, may_be_helped: bool
) -> tuple[tuple[str, ...], PatchError | None]:
    """Warnings about a probe's captures in the original, and a doubt in the place of the error
    where other edits of its patch may bring what is missing; else raises it (`capture`).
    """
    try:
        return check_captures(probe, standing, inner), None
    except PatchError as error:
        if not may_be_helped:
            raise
        return (), error


def check_together(
    file: str, after: bytes, probes: Iterable[tuple[str, Probe, PatchError | None]]
) -> list[str]:
    """Warnings about the captures of sites in what all edits together make.

    Raises the doubt that a site had in the original where it proves right; else `PatchError` with
    state `capture` or `conflict` where an edit takes away what a capture needs.
    """
    told: list[str] = []
    source = read_source(after, file)
    for site, probe, doubt in probes:
        try:
            found = check_placed(source, site, probe, all_shown=doubt is not None)
        except PatchError as error:
            if doubt is not None:
                doubt.file = file
                raise doubt from None
            together = "so it is with all edits of the file in place; lines are counted there"
            error.notes, error.file = (*error.notes, together), file
            raise
        told += found if doubt is not None else ()
    return told
