"""A package with a placed probe runtime, and child processes that run its sites for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.logs.records import RecordReader
from orchestrator.model.record import Record
from orchestrator.session.probe_runtime import runtime_source

SESSION = "20260101-000000-abcd"
SITE = "p.1"

# Stands before every script: `put` writes the table, `look` makes the next `off` read it at once.
PRELUDE = """
import json, os, sys, threading
from sglang import _sgldbg
from sglang.srt import model
def put(**changes):
    table = json.load(open(TABLE)); table.update(changes)
    if "site" in changes: table["sites"]["p.1"].update(table.pop("site"))
    with open(TABLE + ".new", "w") as f: json.dump(table, f)
    os.chmod(TABLE + ".new", 0o600); os.replace(TABLE + ".new", TABLE)
    _sgldbg.next_poll = 0.0
"""
MODULE = """
from sglang import _sgldbg
def f(x=1, y=2, **more):
    z = x; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return z
"""


def make_site(**changes: Any) -> dict[str, Any]:
    """One site as `planning` writes it into the table; captures may be given as plain texts."""
    site = {
        "file": "sglang/srt/model.py",
        "line": 4,
        "class": None,
        "clear": True,
        "capture": ["x"],
        "once_per": [],
        "max_keys": 64,
        "limit": None,
        "every": 1,
        "rate_per_s": None,
        "when": None,
        "emit_if": None,
        "ranks": [],
        "expect": {},
        **changes,
    }
    site["capture"] = [{"name": code, "code": code} for code in site["capture"]]
    return site


@dataclass
class Finished:
    """What a child process left."""

    code: int
    stdout: str
    stderr: bytes
    records: list[Record]
    spooled: list[Record] = field(default_factory=list)
    damaged: int = 0

    def of(self, kind: str) -> list[Record]:
        """The records of one kind, in the order in which they were written."""
        return [r for r in self.records if r.kind == kind]

    def values(self, name: str = "x") -> list[Any]:
        """What the hits captured under a name."""
        return [r.values.get(name) for r in self.of("hit")]


class Workshop:
    """A folder with `sglang/_sgldbg.py`, a patched module and a probe directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.dir = root / "probe"
        self.dir.mkdir(parents=True, mode=0o700)
        start = f"_start({ {'session': SESSION, 'host': 'gpu01', 'dir': str(self.dir)}!r})\n"
        self.write("sglang/__init__.py", "")
        self.write("sglang/srt/__init__.py", "")
        self.write("sglang/_sgldbg.py", runtime_source().decode() + start)
        self.write("sglang/srt/model.py", MODULE)

    def write(self, path: str, text: str) -> Path:
        """A file below the root, with the folders above it."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def put(self, phase: str = "armed", generation: int = 1, **sites: Any) -> None:
        """Write the table; site `p.1` takes its changes from `sites`."""
        self.put_sites({SITE: make_site(**sites)}, phase, generation)

    def put_sites(
        self, sites: dict[str, Any], phase: str = "armed", generation: int = 1, over: bool = False
    ) -> None:
        """Write the table with these sites, the way the agent does: whole, by rename."""
        table = {
            "session": SESSION,
            "generation": generation,
            "phase": phase,
            "over": over,
            "sites": sites,
        }
        new = self.write("probe/new", json.dumps(table))
        new.chmod(0o600)
        os.replace(new, self.dir / "table.json")

    def environment(self) -> dict[str, str]:
        """What a child needs to find the package."""
        return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(self.root), "HOME": str(self.root)}

    def command(self, script: str, python: str = sys.executable) -> list[str]:
        """The command line of a child that runs the script behind the prelude."""
        path = self.write(
            "script.py", f"TABLE = {str(self.dir / 'table.json')!r}\n{PRELUDE}{script}"
        )
        return [python, str(path)]

    def run(self, script: str, python: str = sys.executable) -> Finished:
        """Run the script to its end with stderr on a pipe; both copies of the records are read."""
        done = subprocess.run(
            self.command(script, python),
            env=self.environment(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        return self.finished(done.returncode, done.stdout.decode(), done.stderr)

    def finished(self, code: int, stdout: str, stderr: bytes) -> Finished:
        """Read what a child wrote to stderr and into the probe directory."""
        reader, spool = RecordReader("gpu01"), RecordReader("gpu01")
        spooled = []
        for path in sorted(self.dir.glob("*.jsonl")):
            spooled += spool.feed(path.read_bytes())
        records = reader.feed(stderr) + reader.finish()
        spooled += spool.finish()
        return Finished(code, stdout, stderr, records, spooled, reader.damaged + spool.damaged)
