"""The probe table: what the runtime on a host needs to know of each site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.model.patch import Patch, Probe
from orchestrator.model.plan import Plan, Site


def site_entry(probe: Probe, site: Site, others: Sequence[Site]) -> dict[str, Any]:
    """One site of the table; `docs/reference/record.md` describes it.

    `others` are the same site in other contents of the file: the locals are cleared only where
    that is right in all of them.
    """
    return {
        "file": site.file,
        "line": site.line,
        "class": site.class_name,
        "clear": all(s.clear_locals for s in (site, *others)),
        "capture": [{"name": c.name, "code": c.expression} for c in probe.capture],
        "once_per": [c.expression for c in probe.once_per],
        "max_keys": probe.max_keys,
        "limit": probe.limit,
        "every": probe.every,
        "rate_per_s": probe.rate_per_s,
        "when": probe.when.expression if probe.when else None,
        "emit_if": probe.emit_if.expression if probe.emit_if else None,
        "ranks": list(probe.ranks),
        "expect": {e.name: {"that": e.that, "when": e.when} for e in probe.expect},
    }


def make_sites(patches: Sequence[Patch], sites: Sequence[Site]) -> dict[str, dict[str, Any]]:
    """The entries of all probes among these sites, in order of the patches."""
    found: dict[str, list[Site]] = {}
    for site in sites:
        found.setdefault(site.site, []).append(site)
    return {
        edit.site: site_entry(edit.action, found[edit.site][0], found[edit.site][1:])
        for patch in patches
        for edit in patch.edits
        if isinstance(edit.action, Probe) and edit.site in found
    }


def probe_table(
    plan: Plan, generation: int, phase: str, over: bool = False, *, host: str | None = None
) -> dict[str, Any]:
    """The table as the runtime reads it.

    With `host`, file, line and class of each site are those of that host's own files; without it,
    those of the first host that has the site.
    """
    table: dict[str, Mapping[str, Any]] = {**plan.table}
    for file in plan.of_host(host) if host is not None else ():
        for site in file.sites:
            if site.site in table:
                place = {"file": site.file, "line": site.line, "class": site.class_name}
                table[site.site] = {**table[site.site], **place}
    return {
        "session": plan.session,
        "generation": generation,
        "phase": phase,
        "over": over,
        "sites": {name: dict(entry) for name, entry in table.items()},
    }
