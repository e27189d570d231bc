"""Runs one case folder: `before.py` and `patch.yaml` through the real engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.diagnostics import render
from orchestrator.errors import OrchestratorError
from orchestrator.patching.engine import edit_file
from orchestrator.patching.making.removal import remove_ours
from orchestrator.patching.making.splice import remove_insertions
from orchestrator.patching.wanted import Wanted
from orchestrator.spec.patch import read_patch


@dataclass(frozen=True)
class Ran:
    """What became of a case: new bytes, or the whole text of an error; and warnings, a line each.

    `left` is what taking our statements out by structure makes of the new bytes, `back` what the
    insertions of the plan make of them.
    """

    data: bytes | None
    error: str
    warnings: str
    left: bytes | None
    back: bytes | None = None


def run_case(folder: Path) -> Ran:
    """Apply every edit of the case at its one place."""
    try:
        patch = read_patch(folder / "patch.yaml")
        wanted = [
            Wanted(patch, patch.package, edit.where[0].file, edit, edit.where[0])
            for edit in patch.edits
        ]
        edited = edit_file((folder / "before.py").read_bytes(), wanted)
    except OrchestratorError as error:
        return Ran(None, render(error).replace(f"{folder}/", "") + "\n", "", None)
    # Which syntax is too new depends on the Python that runs the tests; `test_proofs` covers it.
    told = [w for w in edited.warnings if "not syntax that this Python reads" not in w]
    warnings = "".join(f"{warning}\n" for warning in told)
    left = remove_ours(edited.data, "sglang/m.py").data
    back = remove_insertions(edited.data, edited.insertions)
    return Ran(edited.data, "", warnings, left, back)
