"""`sgldbg check`: are these YAML files right?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from orchestrator.cli.options import json_option, project_options
from orchestrator.cli.render import error_facts
from orchestrator.diagnostics import render
from orchestrator.errors import FileError, FileErrors
from orchestrator.model.outcome import ExitCode
from orchestrator.spec.kinds import read_file
from orchestrator.spec.reader import sort_problems


@click.command("check")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@project_options
@json_option
def command(
    files: tuple[Path, ...], inventory: Path | None, patches: tuple[Path, ...], as_json: bool
) -> int:
    """Check FILES: inventories, patches, and sessions with everything that they name.

    Without FILES: inventory.yaml, patches/*.yaml and sessions/*.yaml of the working directory.
    Exit code 3: a file is wrong; every problem is shown.
    """
    problems: list[FileError] = []
    good: list[Path] = []
    for path in files or _find_files():
        try:
            read_file(path, inventory, patches)
        except FileErrors as errors:
            problems += errors.problems
        else:
            good.append(path)
    problems = sort_problems(problems)
    _show_json(good, problems) if as_json else _show(good, problems)
    return ExitCode.FILE if problems else ExitCode.DONE


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


def _show(good: Sequence[Path], problems: Sequence[FileError]) -> None:
    for path in good:
        click.echo(f"ok {path}")
    if problems:
        click.echo(render(FileErrors(problems)), err=True)


def _show_json(good: Sequence[Path], problems: Sequence[FileError]) -> None:
    facts = {
        "ok": [str(path) for path in good],
        "problems": [error_facts(problem) for problem in problems],
    }
    click.echo(json.dumps(facts, indent=2, ensure_ascii=False))
