"""What commands print of errors: exit codes, facts for `--json`, trace files."""

from __future__ import annotations

import os
import sys
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import (
    FileError,
    FleetError,
    HostError,
    OrchestratorError,
    PatchError,
    RevertIncompleteError,
)
from orchestrator.model.outcome import ExitCode


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
        "message": error.message,
        "place": place,
        "notes": list(error.notes),
        "hints": list(error.hints),
    }
    if isinstance(error, PatchError):
        facts |= {"state": error.state, "target": error.file, "hosts": list(error.hosts)}
    if isinstance(error, HostError):
        facts |= {"host": error.host, "code": error.code, "tail": list(error.tail)}
    if isinstance(error, FleetError | RevertIncompleteError):
        facts["errors"] = [error_facts(one) for one in error.errors]
    if isinstance(error, RevertIncompleteError):
        facts["left_to_do"] = list(error.remaining)
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
