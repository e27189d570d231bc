"""A plan: what will change on which host, as data that can be printed, saved and carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Site:
    """The place of a probe (or of inserted code) in one distinct file.

    `line` counts from 1 in the original file and is the line of the anchor; `text` is that line.
    `alternative` counts from 1 in the edit's list of places. `class_name` mangles private names in
    captures; `clear_locals` says that the dict from `locals()` may be emptied after use.
    """

    site: str
    patch: str
    file: str
    scope: str | None
    line: int
    text: str
    alternative: int = 1
    class_name: str | None = None
    clear_locals: bool = False


@dataclass(frozen=True, slots=True)
class Insertion:
    """Bytes put at `offset` of the original file, in the place of `removed` if there are any.

    Removing all of them, and putting back what they took the place of, gives the original.
    """

    offset: int
    data: bytes
    removed: bytes = b""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One distinct content of one file and what becomes of it, on every host that holds it.

    Paths are relative to the directory that holds the package, with slashes. `before_sha256` is
    `None` for a file that the plan creates (the probe runtime).
    """

    file: str
    before_sha256: str | None
    after_sha256: str
    after: bytes
    diff: str
    hosts: tuple[str, ...]
    insertions: tuple[Insertion, ...] = ()
    sites: tuple[Site, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a session will change in installs; `files` in the order of the swap.

    The probe runtime stands first: it goes in first and comes out last. `table` is the probe
    table without its arming: site to what the runtime needs to know.
    """

    session: str
    files: tuple[FilePlan, ...]
    table: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...] = ()

    def sites(self) -> tuple[Site, ...]:
        """All sites of all distinct files, in order."""
        return tuple(s for f in self.files for s in f.sites)

    def of_host(self, host: str) -> tuple[FilePlan, ...]:
        """The files that change on this host, in the order of the swap."""
        return tuple(f for f in self.files if host in f.hosts)
