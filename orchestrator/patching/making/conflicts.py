"""Edits that cannot stand in one file together: what one of them changes is the other's ground."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.patch import Delete, Edit
from orchestrator.model.plan import Site
from orchestrator.patching.making.splice import Change
from orchestrator.patching.structure.walk import Path


@dataclass(frozen=True, slots=True)
class Claim:
    """One edit at one place, as a change of the tree."""

    edit: Edit
    site: Site
    change: Change


def refuse_conflicts(claims: Sequence[Claim]) -> None:
    """Raise `PatchError` (state `conflict`), naming both places, where two edits overlap.

    Beside a statement that another edit replaces there is room; inside of it there is not, and
    nothing is replaced twice.
    """
    for one, other in _pairs(claims):
        if _is_inside(other.change, one.change):
            raise _conflict(one, other)


def _pairs(claims: Sequence[Claim]) -> Iterator[tuple[Claim, Claim]]:
    for number, one in enumerate(claims):
        if one.change.side == "replace":
            yield from ((one, c) for i, c in enumerate(claims) if i != number)


def _is_inside(change: Change, replacing: Change) -> bool:
    if not lies_in(change.path, replacing.path):
        return False
    beside = change.side in ("before", "after")
    # Beside the only statement of a line is beside the line.
    if beside and _is_alone(change.path) and same_place(change.path[:-1], replacing.path):
        return False
    return not beside or len(change.path) > len(replacing.path)


def _is_alone(path: Path) -> bool:
    line = path[-1].node
    return isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1


def same_place(path: Path, other: Path) -> bool:
    """Whether two ways lead to the same."""
    return _keys(path) == _keys(other)


def lies_in(path: Path, outer: Path) -> bool:
    """Whether what the one path leads to is what the other leads to, or a part of it."""
    return _keys(path)[: len(outer)] == _keys(outer)


def _keys(path: Path) -> list[tuple[int, str, int | None]]:
    return [(id(step.node), step.field, step.index) for step in path]


def _conflict(one: Claim, other: Claim) -> PatchError:
    first, second = sorted((one, other), key=lambda c: c.site.line)
    if first.site.site == second.site.site:
        message = f"`{first.site.site}` would change code that it replaces itself"
    else:
        message = f"`{first.site.site}` and `{second.site.site}` change the same code"
    return PatchError(
        message,
        state="conflict",
        span=other.edit.where[other.site.alternative - 1].span,
        notes=[_told(claim) for claim in (first, second)],
        hints=("use one of them, or put both changes into one edit",),
        file=one.site.file,
    )


def _told(claim: Claim) -> str:
    side = claim.change.side
    verb = "deletes" if isinstance(claim.edit.action, Delete) else _VERBS.get(side, side)
    where = f" ({claim.edit.span})" if claim.edit.span else ""
    return f"`{claim.site.site}`{where} {verb} line {claim.site.line}: `{claim.site.text.strip()}`"


_VERBS = {
    "replace": "replaces",
    "wrap": "stands inside",
    "before": "stands before",
    "after": "stands after",
    "decorate": "decorates",
}
