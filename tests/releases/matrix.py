"""How the library fits one release: by the table on its page, and by what planning makes of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from orchestrator.model.patch import Patch
from orchestrator.model.plan import Plan
from orchestrator.planning.plan import make_plan
from orchestrator.planning.view import HostView
from tests.library.books import NAMES, PAGE, read
from tests.releases.wheels import RELEASES, read_files

RUNTIME = b"def _start(config): pass\n"
NOT_THERE = "-"


def view_of(version: str, patches: Sequence[Patch]) -> HostView:
    """A host that holds this release, as far as these patches look at it."""
    names = tuple(dict.fromkeys(file for patch in patches for file in patch.files()))
    return HostView("host", version, read_files(version, names), "/run/probe")


def plan_of(view: HostView, patches: Sequence[Patch]) -> Plan:
    """All these patches in one session; raises `PatchError`."""
    return make_plan("s1", patches, [view], RUNTIME)


def cell_of(plan: Plan, patch: Patch) -> str:
    """Which place of each edit fits, as the table says it."""
    places = {site.site: site.alternative for site in plan.sites()}
    return "+".join(str(places[edit.site]) for edit in patch.edits)


def read_table() -> dict[str, dict[str, str]]:
    """The table of the page: release to patch to cell."""
    lines = PAGE.read_text("utf-8").splitlines()
    (start,) = [n for n, line in enumerate(lines) if line.startswith(f"| | {RELEASES[0]} |")]
    versions = [cell.strip() for cell in lines[start].strip("|").split("|")][1:]
    table: dict[str, dict[str, str]] = {version: {} for version in versions}
    for line in lines[start + 2 :]:
        cells = re.match(r"\| `([a-z0-9-]+)` \| (.+) \|$", line)
        if cells is None:
            break
        for version, cell in zip(versions, cells[2].split(" | "), strict=True):
            table[version][cells[1]] = cell
    return table


def write_table(table: Mapping[str, Mapping[str, str]]) -> str:
    """The same as Markdown."""
    rows = [f"| | {' | '.join(table)} |", "|---" * (len(table) + 1) + "|"]
    rows += [f"| `{name}` | {' | '.join(cells[name] for cells in table.values())} |"
             for name in NAMES]  # fmt: skip
    return "\n".join(rows)


def fitting(version: str) -> list[Patch]:
    """The patches that, by the table, fit this release."""
    return [read(name) for name, cell in read_table()[version].items() if cell != NOT_THERE]
