"""How a patch fits one source: which alternative of each edit, where, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.errors import PatchError
from orchestrator.model.patch import Anchor, Edit, Patch
from orchestrator.model.plan import FilePlan, Site
from orchestrator.patching.finding.moved import find_elsewhere
from orchestrator.patching.wanted import Fitted, Wanted
from orchestrator.planning.fitting import Sources
from orchestrator.planning.making import make
from orchestrator.planning.view import HostView

_RUNTIME = b"def _start(config): pass\n"
# More files than these are not searched for a statement that moved.
_FILES = 40


@dataclass(frozen=True, slots=True)
class Attempt:
    """One alternative of an edit: its sites, with two lines around each, or why it does not fit."""

    number: int
    anchor: Anchor
    sites: tuple[Site, ...] = ()
    shown: tuple[str, ...] = ()
    error: PatchError | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """A patch on one source: why it cannot be applied as a whole, or the files that it makes."""

    patch: str
    edits: tuple[tuple[str, tuple[Attempt, ...]], ...]
    error: PatchError | None
    files: tuple[FilePlan, ...] = ()
    warnings: tuple[str, ...] = ()


def survey(patch: Patch, view: HostView, elsewhere: Mapping[str, bytes]) -> Survey:
    """Try every alternative of every edit, and the patch as a whole.

    In `elsewhere`, further files of the package, a statement that was not found is looked for.
    """
    sources = Sources()
    edits = tuple(
        (edit.site, tuple(_attempts(sources, patch, edit, view, elsewhere))) for edit in patch.edits
    )
    try:
        plan = make("check", [patch], [view], _RUNTIME, sources)
    except PatchError as error:
        return Survey(patch.name, edits, error)
    files = tuple(f for f in plan.files if f.before_sha256 is not None)
    return Survey(patch.name, edits, None, files, plan.warnings)


def _attempts(
    sources: Sources, patch: Patch, edit: Edit, view: HostView, elsewhere: Mapping[str, bytes]
) -> list[Attempt]:
    found = []
    for number, anchor in enumerate(edit.where, 1):
        data = view.files.get(anchor.file)
        if data is None:
            missing = PatchError(
                f"`{anchor.file}` does not exist", state="not found", span=anchor.span
            )
            found.append(Attempt(number, anchor, error=_helped(missing, anchor, elsewhere)))
            continue
        fitted = sources.fit(data, Wanted(patch, patch.package, anchor.file, edit, anchor, number))
        if isinstance(fitted, Fitted):
            source = sources.source_of(data, anchor.file)
            shown = tuple(
                "\n".join(source.shown(site.line - 2, site.line + 2)) for site in fitted.sites
            )
            found.append(Attempt(number, anchor, fitted.sites, shown))
        else:
            found.append(Attempt(number, anchor, error=_helped(fitted, anchor, elsewhere)))
    return found


def _helped(error: PatchError, anchor: Anchor, elsewhere: Mapping[str, bytes]) -> PatchError:
    """The error, with where else in the package the anchor's code stands."""
    if error.state != "not found" or anchor.code is None:
        return error
    hints = []
    for file, data in list(elsewhere.items())[:_FILES]:
        if file != anchor.file:
            hints += find_elsewhere(data, file, anchor)
    return PatchError(
        error.message,
        state=error.state,
        span=error.span,
        notes=error.notes,
        hints=(*error.hints, *hints),
        file=error.file,
    )
