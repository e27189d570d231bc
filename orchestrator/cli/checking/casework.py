"""Runs the cases that patches own: each a source and what the patch must make of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.diagnostics import render
from orchestrator.errors import FileError, PatchError
from orchestrator.model.patch import Patch
from orchestrator.planning.view import HostView
from orchestrator.session.engine import Engine
from orchestrator.spec.cases import Case

# Lines of a difference that are shown; the rest is in the file.
_SHOWN = 20


def run_case(engine: Engine, patch: Patch, case: Case) -> FileError | None:
    """What is wrong with a case; `None` where the patch does what it says."""
    files: dict[str, bytes | None] = {f: case.before.get(f) for f in patch.files()}
    view = HostView("the case", case.version, files, "/")
    found = engine.survey(patch, view)
    if found.error is not None:
        said = error_text(patch, found.error)
        if case.error is None:
            lines = said.splitlines()
            return FileError(f"case `{case.path}`: the patch does not fit", notes=lines)
        return _differs(case, "error.txt", case.error, said)
    if case.error is not None:
        return FileError(
            f"case `{case.path}`: the patch fits, and `error.txt` says that it does not"
        )
    return _compare(case, {f.file: f.after for f in found.files})


def error_text(patch: Patch, error: PatchError) -> str:
    """An error as a case keeps it: independent of the folder in which the patch stands."""
    for one in (error, *error.others):
        one.hosts = ()  # a case has none
    return render(error).replace(patch.path, f"{patch.name}.yaml") + "\n"


def _compare(case: Case, made: Mapping[str, bytes]) -> FileError | None:
    wanted = {**case.before, **(case.after or {})}
    result: dict[str, bytes] = {**case.before, **made}
    for file in wanted:
        if wanted[file] != result.get(file):
            old, new = (d.decode("utf-8", "replace") for d in (wanted[file], result.get(file, b"")))
            return _differs(case, file, old, new)
    return None


def _differs(case: Case, name: str, wanted: str, made: str) -> FileError | None:
    if wanted == made:
        return None
    return FileError(
        f"case `{case.path}`: `{name}` is not what the patch makes",
        notes=["\n".join(("expected -, made +:", *_diff(wanted, made)))],
    )


def _diff(wanted: str, made: str) -> Iterator[str]:
    rows: Sequence[str] = list(
        difflib.unified_diff(wanted.splitlines(), made.splitlines(), lineterm="", n=1)
    )[2:]
    yield from rows[:_SHOWN]
    if len(rows) > _SHOWN:
        yield f"... {len(rows) - _SHOWN} more lines"
