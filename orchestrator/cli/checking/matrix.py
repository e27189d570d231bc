"""The table of `sgldbg check --against`: each edit of each patch on each release."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.diagnostics import render
from orchestrator.errors import OrchestratorError, PatchError
from orchestrator.model.patch import Patch
from orchestrator.planning.survey import Attempt, Survey
from orchestrator.planning.view import HostView
from orchestrator.releases.source import Release
from orchestrator.session.engine import Engine

# Words of an anchor that say little: a file that has them all need not have the anchor.
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{3,}")
_METAVARIABLE = re.compile(r"\$+\w*")


@dataclass(frozen=True, slots=True)
class Cell:
    """One patch on one release; `error` is set where the engine itself failed."""

    patch: Patch
    release: Release
    survey: Survey | None
    error: OrchestratorError | None

    @property
    def fits(self) -> bool:
        """Whether the patch can be applied there."""
        return self.error is None

    @property
    def is_excluded(self) -> bool:
        """Whether the patch itself says that it is not meant for this release."""
        span = self.patch.spans.get("versions")
        return span is not None and any(e.span == span for e in _errors(self.error))


def survey_all(
    engine: Engine, patches: Sequence[Patch], releases: Sequence[Release], *, search: bool
) -> list[Cell]:
    """Every patch on every release; with `search`, what moved is looked for in other files."""
    return [_survey(engine, patch, release, search) for patch in patches for release in releases]


def _survey(engine: Engine, patch: Patch, release: Release, search: bool) -> Cell:
    view = HostView(
        release.label, release.version, {f: release.read(f) for f in patch.files()}, "/"
    )
    try:
        found = engine.survey(patch, view)
        if search and any(_may_have_moved(attempts) for _, attempts in found.edits):
            found = engine.survey(patch, view, _files_with(patch, release))
    except PatchError as error:
        return Cell(patch, release, None, error)
    return Cell(patch, release, found, found.error)


def _may_have_moved(attempts: Sequence[Attempt]) -> bool:
    """Whether an edit fits none of its places, and one of them because its code is not there."""
    errors = [attempt.error for attempt in attempts]
    return None not in errors and any(e is not None and e.state == "not found" for e in errors)


def _files_with(patch: Patch, release: Release) -> dict[str, bytes]:
    """Files that hold all words of some anchor of the patch."""
    codes = {a.code for e in patch.edits for a in e.where if a.code}
    wanted = [set(_WORD.findall(_METAVARIABLE.sub("", code).encode())) for code in codes]
    files: dict[str, bytes] = {}
    for file in release.files():
        data = release.read(file) or b""
        if any(words and all(word in data for word in words) for words in wanted):
            files[file] = data
    return files


def table(cells: Sequence[Cell]) -> Iterator[str]:
    """Rows of text: a row for each edit, a column for each release."""
    labels = list(dict.fromkeys(cell.release.label for cell in cells))
    rows: dict[str, list[str]] = {}
    for cell in cells:
        for site, text in _texts(cell).items():
            rows.setdefault(site, []).append(text)
    heads = ["patch", *labels]
    lines = [heads, *([site, *texts] for site, texts in rows.items())]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        yield "  ".join(
            text.ljust(width) for text, width in zip(line, widths, strict=True)
        ).rstrip()


def _texts(cell: Cell) -> dict[str, str]:
    names = {e.site: e.site if len(cell.patch.edits) > 1 else cell.patch.name
             for e in cell.patch.edits}  # fmt: skip
    if cell.is_excluded:
        return dict.fromkeys(names.values(), "not meant")
    if cell.survey is None:
        return dict.fromkeys(names.values(), getattr(cell.error, "state", "failed"))
    return {names[site]: _text(cell, attempts) for site, attempts in cell.survey.edits}


def _text(cell: Cell, attempts: Sequence[Attempt]) -> str:
    fitting = [a for a in attempts if a.error is None]
    if len(fitting) == 1:
        lines = ",".join(str(site.line) for site in fitting[0].sites)
        which = f" ({fitting[0].number})" if len(attempts) > 1 else ""
        # All its places are there, and still the patch as a whole cannot be applied.
        state = cell.error.state if isinstance(cell.error, PatchError) else ""
        return f"{lines}{which}" + (f" {state}" if state in ("conflict", "proof") else "")
    if fitting:
        return "ambiguous"
    return next((a.error.state for a in attempts if a.error and a.error.state != "not found"),
                "not found")  # fmt: skip


def reasons(cells: Sequence[Cell]) -> Iterator[str]:
    """Why patches do not fit, each reason once with the releases that share it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        errors = _errors(cell.error)
        for error in errors[:1] if cell.is_excluded else errors:
            groups.setdefault((cell.patch.name, error.message), []).append(cell.release.label)
    for (name, message), labels in groups.items():
        yield f"{name} on {', '.join(labels)}: {message}"


def _errors(error: OrchestratorError | None) -> list[OrchestratorError]:
    if error is None:
        return []
    return [error, *(error.others if isinstance(error, PatchError) else ())]


def explain(cells: Sequence[Cell]) -> Iterator[str]:
    """For each place of each edit: where it fits, or the whole error."""
    for cell in cells:
        for site, attempts in cell.survey.edits if cell.survey else ():
            yield f"== {site} on {cell.release.label}"
            for attempt in attempts:
                yield from _explained(attempt, len(attempts))
        others = [e for e in _errors(cell.error) if getattr(e, "state", "") in _WHOLE]
        yield from map(render, others)


# States that no single place explains.
_WHOLE = ("out of range", "proof", "conflict", "engine", "lossy")


def _explained(attempt: Attempt, count: int) -> Iterator[str]:
    which = f"place {attempt.number}" if count > 1 else "it"
    if attempt.error is not None:
        yield f"{which} does not fit:"
        yield render(attempt.error)
        return
    for site, shown in zip(attempt.sites, attempt.shown, strict=True):
        where = f" in `{site.scope}`" if site.scope else ""
        yield f"{which} fits line {site.line} of {site.file}{where}:"
        yield "\n".join(f"  {line}" for line in shown.splitlines())


def facts(cells: Sequence[Cell]) -> list[Mapping[str, Any]]:
    """The table as data."""
    from orchestrator.cli.render import error_facts

    return [
        {
            "patch": cell.patch.name,
            "release": cell.release.label,
            "version": cell.release.version,
            "fits": cell.fits,
            "edits": [
                {"site": site, "places": [_attempt_facts(a) for a in attempts]}
                for site, attempts in (cell.survey.edits if cell.survey else ())
            ],
            "warnings": list(cell.survey.warnings) if cell.survey else [],
            "errors": [error_facts(e) for e in _errors(cell.error)],
        }
        for cell in cells
    ]


def _attempt_facts(attempt: Attempt) -> dict[str, Any]:
    sites = [{"file": s.file, "line": s.line, "in": s.scope, "text": s.text} for s in attempt.sites]
    error = attempt.error
    return {
        "place": attempt.number,
        "sites": sites,
        "state": error.state if error else "fits",
        "message": error.message if error else "",
    }
