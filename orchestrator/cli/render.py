"""What commands print of errors: exit codes, text, JSON, trace files."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.given import complete, find_given
from orchestrator.diagnostics import one_line, render
from orchestrator.errors import (
    FileError,
    FileErrors,
    FleetError,
    HostError,
    OrchestratorError,
    PatchError,
    RevertIncompleteError,
)
from orchestrator.model.outcome import ExitCode, Outcome
from orchestrator.userfile import reason_of


def find_exit_code(error: OrchestratorError) -> int:
    """The code for an error that ended a command; one that the session set on it wins."""
    if error.exit_code is not None:
        return int(error.exit_code)
    match error:
        case FileError():
            return ExitCode.FILE
        case PatchError():
            return ExitCode.PATCH
        case HostError() | FleetError():
            return ExitCode.REFUSED
        case RevertIncompleteError():
            return ExitCode.NOT_RESTORED
    return ExitCode.SESSION


def say(text: str) -> None:
    """A line on stderr; its commands can be pasted."""
    show_line(complete(text), err=True)


def show_line(text: str, *, err: bool = False) -> None:
    """One line whatever it holds: names of files and words of hosts never reach further."""
    click.echo(one_line(text), err=err)


def say_error(error: OrchestratorError) -> str:
    """The whole text of an error on stderr, which is returned as well."""
    text = complete(render(error))
    click.echo(text, err=True)
    return text


def show_json(value: object) -> None:
    """The one JSON document of a command on stdout."""
    find_given().shown = True
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show_failure(code: int, error: OrchestratorError | None, bug: Exception | None = None) -> None:
    """With `--json`: why a command ended before it had anything else to show."""
    given = find_given()
    if given.as_json and not given.shown:
        show_json(failure_facts(code, error, bug, error.outcomes if error is not None else ()))


def failure_facts(
    code: int, error: OrchestratorError | None, bug: Exception | None, outcomes: Sequence[Outcome]
) -> dict[str, Any]:
    """How a command ended, and in which state each host is."""
    return {
        "exit_code": int(code),
        "error": None if error is None else error_facts(error),
        "bug": None if bug is None else f"{type(bug).__name__}: {bug}",
        "hosts": {
            o.host: {"files": o.state, "server": o.server, "message": complete(o.message)}
            for o in outcomes
        },
    }


def error_facts(error: OrchestratorError) -> dict[str, Any]:
    """An error for `--json`: what the text says, as data."""
    span = error.span
    place = None
    if span is not None:
        place = {
            "file": span.path,
            "line": span.line,
            "column": span.column,
            "end_line": span.end_line,
            "end_column": span.end_column,
        }
    facts: dict[str, Any] = {
        "message": complete(error.message),
        "place": place,
        "notes": [complete(note) for note in error.notes],
        "hints": [complete(hint) for hint in error.hints],
    }
    if isinstance(error, FileErrors):
        facts["problems"] = [error_facts(one) for one in error.problems]
    if isinstance(error, PatchError):
        facts |= {"state": error.state, "target": error.file, "hosts": list(error.hosts)}
        facts["others"] = [error_facts(one) for one in error.others]
    if isinstance(error, HostError):
        facts |= {"host": error.host, "code": error.code, "tail": list(error.tail)}
    if isinstance(error, FleetError | RevertIncompleteError):
        facts["errors"] = [error_facts(one) for one in error.errors]
    if isinstance(error, RevertIncompleteError):
        facts["left_to_do"] = [complete(text) for text in error.remaining]
    return facts


def keep_trace(error: BaseException) -> Path:
    """Write the traceback to a new file in our state directory, for the user's eyes only."""
    state = os.environ.get("SGLDBG_STATE") or Path.home() / ".local" / "state" / "sgldbg"
    folder = Path(state) / "traces"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.txt"
    text = "".join(
        [
            f"sgldbg {' '.join(sys.argv[1:])}\nPython {sys.version}\n\n",
            *traceback.format_exception(error),
        ]
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return path


def report_bug(error: Exception) -> int:
    """Keep the trace in a file and name it; a page of internals helps no user."""
    show_failure(ExitCode.OUR_BUG, None, error)
    said = f"{type(error).__name__}: {error}"
    try:
        path = keep_trace(error)
    except OSError as failure:
        where = failure.filename or "the trace file"
        click.echo(f"{where}: {reason_of(failure)}; so here is the trace:", err=True)
        click.echo("".join(traceback.format_exception(error)), err=True)
        return ExitCode.OUR_BUG
    click.echo(f"error: a bug of sgldbg: {said}; please report it with {path}", err=True)
    return ExitCode.OUR_BUG
