"""Decides for each edit which of its alternatives a host's files call for: exactly one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import PatchError, StandsAlreadyError
from orchestrator.model.patch import Edit, Patch
from orchestrator.patching.source import Source, read_source
from orchestrator.patching.wanted import Fitted, Wanted, fit


@dataclass
class Sources:
    """The files of all hosts, each distinct content parsed once and each edit of it tried once."""

    _sources: dict[tuple[str, str], Source | PatchError] = field(default_factory=dict)
    _fitted: dict[tuple[str, str, str, int], Fitted | PatchError] = field(default_factory=dict)

    def fit(self, data: bytes, wanted: Wanted) -> Fitted | PatchError:
        """How the wanted edit fits these bytes, or why it does not."""
        sha256 = hashlib.sha256(data).hexdigest()
        key = (wanted.file, sha256, wanted.edit.site, wanted.alternative)
        if key not in self._fitted:
            self._fitted[key] = self._try(data, sha256, wanted)
        return self._fitted[key]

    def source(self, file: str, sha256: str) -> Source:
        """A file that some edit was fitted to."""
        source = self._sources[file, sha256]
        assert isinstance(source, Source)
        return source

    def source_of(self, data: bytes, file: str) -> Source:
        """The same, by its bytes."""
        return self.source(file, hashlib.sha256(data).hexdigest())

    def _try(self, data: bytes, sha256: str, wanted: Wanted) -> Fitted | PatchError:
        key = (wanted.file, sha256)
        if key not in self._sources:
            try:
                self._sources[key] = read_source(data, wanted.file)
            except PatchError as error:
                self._sources[key] = error
        source = self._sources[key]
        if isinstance(source, PatchError):
            return source
        try:
            return fit(source, wanted)
        except PatchError as error:
            return error


@dataclass(frozen=True)
class Holding:
    """Hosts whose files that matter are equal byte for byte."""

    hosts: tuple[str, ...]
    files: Mapping[str, bytes | None]


def choose(sources: Sources, patch: Patch, edit: Edit, holding: Holding) -> Fitted:
    """The one alternative of an edit that fits; raises `PatchError` naming file and hosts.

    `StandsAlreadyError` where one is there already and no other fits.
    """
    fitting: list[Fitted] = []
    reasons: list[tuple[int, PatchError]] = []
    for number, anchor in enumerate(edit.where, 1):
        data = holding.files.get(anchor.file)
        if data is None:
            missing = PatchError(
                f"`{anchor.file}` does not exist",
                state="not found",
                span=anchor.span,
                # Among several places a missing file is what tells releases apart.
                hints=("correct `file`, or add the place where this release has the code",)
                if len(edit.where) == 1
                else (),
                file=anchor.file,
            )
            reasons.append((number, missing))
            continue
        wanted = Wanted(patch, patch.package, anchor.file, edit, anchor, number)
        found = sources.fit(data, wanted)
        if isinstance(found, PatchError):
            reasons.append((number, found))
        else:
            fitting.append(found)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise _several(edit, fitting, holding)
    raise _none(edit, reasons, holding)


def _several(edit: Edit, fitting: Sequence[Fitted], holding: Holding) -> PatchError:
    notes = []
    for found in fitting:
        lines = ", ".join(str(site.line) for site in found.sites)
        notes.append(f"place {found.wanted.alternative} fits `{found.wanted.file}`, line {lines}")
    return PatchError(
        f"{len(fitting)} of the {len(edit.where)} places of `{edit.site}` fit, not one",
        state="ambiguous",
        span=edit.span,
        notes=notes,
        hints=("make each place say what only its releases have",),
        file=fitting[0].wanted.file,
        hosts=holding.hosts,
    )


def _none(edit: Edit, reasons: Sequence[tuple[int, PatchError]], holding: Holding) -> PatchError:
    # A place that is there but cannot be used says more than those that are not there.
    telling = [error for _, error in reasons if error.state != "not found"]
    if len(reasons) == 1 or len(telling) == 1:
        error = telling[0] if telling else reasons[0][1]
        others = [(n, e) for n, e in reasons if e is not error]
        kind = StandsAlreadyError if isinstance(error, StandsAlreadyError) else PatchError
        return kind(
            error.message,
            state=error.state,
            span=error.span,
            notes=[*error.notes, *(f"place {n} does not fit: {e.message}" for n, e in others)],
            hints=error.hints,
            file=error.file,
            hosts=holding.hosts,
        )
    return PatchError(
        f"none of the {len(edit.where)} places of `{edit.site}` fits",
        state=telling[0].state if telling else "not found",
        span=edit.span,
        notes=[f"place {number}: {error.message}" for number, error in reasons],
        hints=[f"place {n}: {hint}" for n, error in reasons for hint in error.hints],
        file=reasons[0][1].file,
        hosts=holding.hosts,
    )
