"""The directory that a run leaves: plan, diffs, timeline, logs, records, verdict."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.errors import DiskError
from orchestrator.model.plan import Plan
from orchestrator.model.record import Record, Verdict
from orchestrator.userfile import is_full, reason_of


class RunDir:
    """`runs/<time>-<session>/`, 0700. Writing may happen from several threads.

    A disk that takes no more must not end a session while hosts are changed: after the plan, what
    could not be written is passed over, and `problem` says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._lock = threading.Lock()

    @classmethod
    def create(cls, base: Path, session: str, stamp: str) -> RunDir:
        """Make the directory; a second run within the same second gets a number."""
        base.mkdir(parents=True, exist_ok=True)
        for n in range(1000):
            path = base / (f"{stamp}-{session}" + (f"-{n}" if n else ""))
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return cls(path)
        raise FileExistsError(f"{base} holds a thousand runs of this second")

    def log_path(self, host: str, name: str) -> Path:
        """Where a host's log goes; the folder is made. Raises `OSError` where the disk is full."""
        folder = self.path / "hosts" / host
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"

    def write_json(self, name: str, value: object) -> None:
        """Write one document, readable by people and programs."""
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
        (self.path / name).write_text(text + "\n", encoding="utf-8")

    def write_plan(self, plan: Plan) -> None:
        """`plan.json` without the file contents, and one diff per distinct file.

        No session begins without them: raises `DiskError` where the disk does not take them.
        """
        try:
            self._write_plan(plan)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _write_plan(self, plan: Plan) -> None:
        self.write_json("plan.json", plan_facts(plan))
        folder = self.path / "diffs"
        folder.mkdir(exist_ok=True)
        for file in plan.files:
            if file.before_sha256 is not None:
                name = file.file.replace("/", "__") + f".{file.before_sha256[:8]}.diff"
                (folder / name).write_text(file.diff, encoding="utf-8", errors="surrogateescape")

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """One line of a `.jsonl` file, flushed, so that a dead controller leaves it whole."""
        line = json.dumps(row, ensure_ascii=False, default=str) + "\n"
        with self._lock:
            self.note_failure(name, lambda: self._append(name, line))

    def _append(self, name: str, line: str) -> None:
        with open(self.path / name, "a", encoding="utf-8") as out:
            out.write(line)

    def write_verdict(self, verdict: Verdict) -> None:
        """The answer, as data."""
        self.note_failure("verdict.json", lambda: self.write_json("verdict.json", asdict(verdict)))

    def note_failure(self, name: str, write: Callable[[], object]) -> None:
        """Write, or remember in `problem` that the disk would not have it."""
        try:
            write()
        except OSError as error:
            text = f"{self.path / name} is not whole: {reason_of(error)}"
            self.problem = self.problem or text

    def append_records(self, records: list[Record]) -> None:
        """Add records to `records.jsonl`."""
        for record in records:
            self.append("records.jsonl", asdict(record))


def unwritable(folder: Path, error: OSError) -> DiskError:
    """The error of a folder for a run that takes nothing."""
    return DiskError(
        f"the run's directory cannot be written in `{folder}`: {reason_of(error)}",
        hints=("make room there, or name another folder with `--runs`",),
    )


def full_disk(error: BaseException) -> DiskError | None:
    """The error of a full disk of the controller, wherever it was met; `None` for any other."""
    if not is_full(error):
        return None
    assert isinstance(error, OSError)
    what = f"`{error.filename}`" if error.filename else "a file of this command"
    return DiskError(
        f"{what} cannot be written on this machine: {reason_of(error)}", hints=("make room there",)
    )


def plan_facts(plan: Plan) -> dict[str, Any]:
    """A plan as JSON: everything but the bytes, which stand in the diffs."""
    return {
        "session": plan.session,
        "files": [
            {
                "file": f.file,
                "before_sha256": f.before_sha256,
                "after_sha256": f.after_sha256,
                "hosts": list(f.hosts),
                "sites": [asdict(s) for s in f.sites],
            }
            for f in plan.files
        ],
        "table": {site: dict(row) for site, row in plan.table.items()},
        "warnings": list(plan.warnings),
    }
