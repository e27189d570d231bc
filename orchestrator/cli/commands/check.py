"""`sgldbg check`: are these YAML files right, do patches keep their cases, where do they fit?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.options import UserPath, json_option, project_options
from orchestrator.cli.render import error_facts, say_error, show_json, show_line
from orchestrator.errors import FileError, FileErrors
from orchestrator.model.outcome import ExitCode
from orchestrator.model.patch import Patch
from orchestrator.spec.cases import read_cases
from orchestrator.spec.kinds import find_kind, read_file
from orchestrator.spec.patch import read_patch
from orchestrator.spec.project import list_patch_folders, load_project
from orchestrator.spec.reader import sort_problems


@dataclass
class _Found:
    """What the files turned out to be; `taken`: of each session, its patches and their files."""

    good: list[Path] = field(default_factory=list)
    taken: dict[Path, dict[str, str]] = field(default_factory=dict)
    patches: list[Patch] = field(default_factory=list)
    problems: list[FileError] = field(default_factory=list)
    cases: int = 0


@click.command("check")
@click.argument("files", nargs=-1, type=UserPath())
@project_options
@click.option(
    "--against",
    multiple=True,
    metavar="PATH|VERSION",
    help="Try the patches on a checkout, an unpacked wheel, a wheel, or a release of the index.",
)
@click.option("--explain", is_flag=True, help="With --against: why each place fits or does not.")
@json_option
def command(
    files: tuple[Path, ...],
    inventory: Path | None,
    patches: tuple[Path, ...],
    against: tuple[str, ...],
    explain: bool,
    as_json: bool,
) -> int:
    """Check FILES: inventories, sessions with everything that they name, and patches.

    Without FILES: inventory.yaml, patches/*.yaml and sessions/*.yaml of the working directory. A
    patch may be given by its name. The cases that a patch owns (cases/NAME/ beside it) are run.
    With --against, a table shows where each edit of each patch fits.

    Exit code 3: a file or a case is wrong; every problem is shown. 4: a patch does not fit a
    release that its `versions` include.
    """
    if explain and not against:
        raise click.UsageError("--explain needs --against: a place fits or not in some source")
    try:
        chosen = [_named(path, patches) for path in files or _find_files()]
    except FileErrors as errors:
        found = _Found(problems=list(errors.problems))
    else:
        found = _read(chosen, inventory, patches)
        _run_cases(found)
    cells: list[Any] = []
    if against and not found.problems:
        cells = _survey(found.patches, against, search=explain or as_json)
    _show_json(found, cells) if as_json else _show(found, cells, explain=explain)
    if found.problems:
        return ExitCode.FILE
    fits = all(cell.fits or cell.is_excluded for cell in cells)
    return ExitCode.DONE if fits else ExitCode.PATCH


def _named(path: Path, folders: Sequence[Path]) -> Path:
    """The patch of that name, where the path is no file but could be a name."""
    if not path.exists() and path.suffix == "" and len(path.parts) == 1:
        for folder in list_patch_folders(Path(), folders):
            if (folder / f"{path}.yaml").exists():
                return folder / f"{path}.yaml"
    return path


def _find_files() -> list[Path]:
    here = Path()
    found = [here / "inventory.yaml"] if (here / "inventory.yaml").exists() else []
    for folder in ("patches", "sessions"):
        found += sorted((here / folder).glob("*.yaml"))
    if not found:
        message = "there is nothing to check in this folder"
        hint = "name files, or go where inventory.yaml, patches/ and sessions/ are"
        raise FileErrors([FileError(message, hints=[hint])])
    return found


def _read(files: Sequence[Path], inventory: Path | None, patches: Sequence[Path]) -> _Found:
    found = _Found()
    for path in files:
        try:
            match find_kind(path):
                case "patch":
                    found.patches.append(read_patch(path))
                case "session":
                    project = load_project(path, inventory, patches)
                    found.taken[path] = {patch.name: patch.path for patch in project.patches}
                case _:
                    read_file(path)
        except FileErrors as errors:
            found.problems += errors.problems
        else:
            found.good.append(path)
    found.problems = sort_problems(found.problems)
    return found


def _run_cases(found: _Found) -> None:
    """Run what the patches own, where they own anything."""
    owned = []
    for patch in found.patches:
        try:
            owned += [(patch, case) for case in read_cases(patch)]
        except FileErrors as errors:
            found.problems += errors.problems
    if not owned:
        return
    from orchestrator.cli.checking.casework import run_case
    from orchestrator.session.engine import Engine

    with Engine() as engine:
        problems = [run_case(engine, patch, case) for patch, case in owned]
    found.problems += [problem for problem in problems if problem is not None]
    found.cases = len(owned)


def _survey(patches: Sequence[Patch], against: Sequence[str], *, search: bool) -> list[Any]:
    from orchestrator.cli.checking.matrix import survey_all
    from orchestrator.releases.source import open_release
    from orchestrator.releases.wheels import cache_dir
    from orchestrator.session.engine import Engine

    if not patches:
        raise click.UsageError("--against needs patches among the files")
    packages = dict.fromkeys(patch.package for patch in patches)
    cells = []
    with Engine() as engine:
        for package in packages:
            releases = [open_release(text, package, cache_dir()) for text in against]
            mine = [patch for patch in patches if patch.package == package]
            cells += survey_all(engine, mine, releases, search=search)
    return cells


def _show(found: _Found, cells: Sequence[Any], *, explain: bool) -> None:
    for path in found.good:
        show_line(f"ok {path}")
        for name, file in found.taken.get(path, {}).items():
            show_line(f"   patch {name}: {file}")
    if found.cases:
        wrong = sum(1 for problem in found.problems if problem.message.startswith("case "))
        click.echo(f"{found.cases} cases, {wrong or 'none'} wrong")
    if cells:
        from orchestrator.cli.checking import matrix

        for line in [*matrix.table(cells), *(matrix.explain(cells) if explain else ())]:
            click.echo(line)
        for line in matrix.reasons(cells):
            click.echo(line, err=True)
    if found.problems:
        say_error(FileErrors(found.problems))


def _show_json(found: _Found, cells: Sequence[Any]) -> None:
    facts: dict[str, Any] = {
        "ok": [str(path) for path in found.good],
        "problems": [error_facts(problem) for problem in found.problems],
    }
    if found.taken:
        facts["patches"] = {str(path): files for path, files in found.taken.items()}
    if found.cases:
        facts["cases"] = found.cases
    if cells:
        from orchestrator.cli.checking import matrix

        facts["releases"] = matrix.facts(cells)
    show_json(facts)
