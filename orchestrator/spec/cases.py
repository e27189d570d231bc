"""The examples that a patch owns: `cases/<patch>/<case>/` beside its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import FileError, FileErrors
from orchestrator.model.patch import Patch
from orchestrator.spec.reader import read_bytes, read_text


@dataclass(frozen=True, slots=True)
class Case:
    """Files before, and either all of them after or the whole text of the error.

    Paths are from the package's own name on. `version` is the release that the files pretend to
    be of.
    """

    path: Path
    before: Mapping[str, bytes]
    after: Mapping[str, bytes] | None
    error: str | None
    version: str | None = None


def read_cases(patch: Patch) -> list[Case]:
    """The cases of a patch, by name; raises `FileErrors` with what is wrong in their folders.

    `before.py` stands for the one file that the patch names; where it names several, or more than
    one matters, `before/` holds them below their own paths. So do `after.py` and `after/`.
    `error.txt` is the text that an error has instead; `version.txt` a release.
    """
    folder = Path(patch.path).parent / "cases" / patch.name
    problems: list[FileError] = []
    cases = []
    for path in sorted(p for p in folder.glob("*") if p.is_dir()):
        try:
            cases.append(_read(path, patch))
        except FileErrors as errors:
            problems += errors.problems
    if problems:
        raise FileErrors(problems)
    return cases


def _read(path: Path, patch: Patch) -> Case:
    before = _files(path, "before", patch)
    after = _files(path, "after", patch)
    error = path / "error.txt"
    version = path / "version.txt"
    if not before:
        raise _problem(path, "it has neither `before.py` nor `before/`")
    if bool(after) == error.exists():
        raise _problem(path, "it needs `after.py` (or `after/`), or else `error.txt`")
    return Case(
        path,
        before,
        after or None,
        read_text(error) if error.exists() else None,
        read_text(version).strip() if version.exists() else None,
    )


def _files(path: Path, name: str, patch: Patch) -> dict[str, bytes]:
    folder, single = path / name, path / f"{name}.py"
    if folder.is_dir():
        found = sorted(p for p in folder.rglob("*") if not p.is_dir())
        return {p.relative_to(folder).as_posix(): read_bytes(p) for p in found}
    if not single.exists():
        return {}
    files = patch.files()
    if len(files) != 1:
        hint = f"put it where it belongs, like `{name}/{files[0]}`"
        raise _problem(path, f"the patch names {len(files)} files: which one is `{name}.py`?", hint)
    return {files[0]: read_bytes(single)}


def _problem(path: Path, message: str, hint: str = "") -> FileErrors:
    return FileErrors([FileError(f"case `{path}`: {message}", hints=[hint] if hint else ())])
