"""What there is to say of files with other names or without a source, and of shared installs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from orchestrator.diagnostics import fold_hosts
from orchestrator.model.plan import Plan

# Of each host, what it said of each file that it was asked for.
Rows = Mapping[str, Mapping[str, Mapping[str, Any]]]


def note_links(plan: Plan, rows: Rows) -> list[str]:
    """One note for each file with other names, one for all hosts that see the same install."""
    return [*_note_names(plan, rows), *_note_shared(plan, rows)]


def note_compiled(rows: Rows) -> list[str]:
    """One note for each file that is asked for and has no source, though it can be imported."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for host, files in rows.items():
        for file, row in files.items():
            if row.get("compiled"):
                hosts.setdefault((file, row["compiled"]), []).append(host)
    return [
        f"{fold_hosts(where)}: {file} has no source, only `{name}` stands there, which no patch"
        " can change"
        for (file, name), where in hosts.items()
    ]


def _note_names(plan: Plan, rows: Rows) -> list[str]:
    hosts: dict[tuple[str, int], list[str]] = {}
    for file in plan.files:
        for host in file.hosts:
            names = rows[host].get(file.file, {}).get("nlink") or 1
            if names > 1:
                hosts.setdefault((file.file, names), []).append(host)
    return [
        f"{fold_hosts(where)}: {file} is one of {names} names of the same file, as in a package"
        " cache: the others stay as they are, and it is one of them again after the revert"
        for (file, names), where in hosts.items()
    ]


def _note_shared(plan: Plan, rows: Rows) -> list[str]:
    groups: dict[tuple[str, ...], None] = {}
    for file in plan.files:
        places: dict[tuple[str, str], list[str]] = {}
        for host in file.hosts:
            row = rows[host].get(file.file, {})
            if row.get("place"):
                key = (row["place"], PurePosixPath(row["path"]).name)
                places.setdefault(key, []).append(host)
        groups |= {tuple(hosts): None for hosts in places.values() if len(hosts) > 1}
    return [
        f"{fold_hosts(hosts)}: one and the same install: it is patched once and reverted once"
        for hosts in groups
    ]
