"""Room beside a statement whose line another edit replaces by other lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import libcst as cst

from orchestrator.model.plan import Site
from orchestrator.patching.making.conflicts import same_place
from orchestrator.patching.making.edits import Made
from orchestrator.patching.making.splice import Change


def make_room(made: Sequence[Made], sites: Sequence[Site]) -> tuple[list[Made], list[str]]:
    """The edits with those on lines of their own that would join a line which goes; warnings.

    They stay nearest to the statement, as they would on its line. `sites` has one for each edit.
    """
    gone = [m.change for m in made if m.change.side == "replace"]
    first: list[Made] = []
    others: list[Made] = []
    last: list[Made] = []
    warnings = []
    for one, site in zip(made, sites, strict=True):
        change = one.change
        if not any(_joins(change, replacing) for replacing in gone):
            others.append(one)
            continue
        small = [n for n in change.nodes if isinstance(n, cst.BaseSmallStatement)]
        line = change.path[-1].node
        assert isinstance(line, cst.SimpleStatementLine)
        end = cst.TrailingWhitespace(newline=line.trailing_whitespace.newline)
        lines = tuple(cst.SimpleStatementLine([n], trailing_whitespace=end) for n in small)
        moved = dataclasses.replace(change, path=change.path[:-1], nodes=lines)
        (first if change.side == "after" else last).append(Made(moved, moves=True))
        where = f"`{site.site}` has its own line at line {site.line}"
        warnings.append(f"`{site.file}`: {where}: the lines below move")
    return [*first, *others, *last], warnings


def _joins(change: Change, replacing: Change) -> bool:
    return change.side in ("before", "after") and same_place(change.path[:-1], replacing.path)
