"""Every folder of `cases` holds a source, a patch, and what the engine makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.model.patch import Probe
from orchestrator.spec.patch import read_patch
from tests.patching.caserun import run_case

CASES = sorted(p.parent for p in Path(__file__).parent.glob("cases/*/patch.yaml"))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_case(case: Path) -> None:
    """The result is `after.py` byte for byte, or the whole text of `error.txt`; warnings too."""
    ran = run_case(case)

    assert ran.error == _read(case / "error.txt")
    expected = case / "after.py"
    assert ran.data == (expected.read_bytes() if expected.exists() else None)
    assert ran.warnings == _read(case / "warnings.txt")


@pytest.mark.parametrize(
    "case", [c for c in CASES if (c / "after.py").exists()], ids=lambda p: p.name
)
def test_case_comes_back_by_structure(case: Path) -> None:
    """The plan's insertions give the original back; for probes, their structure alone does too."""
    patch = read_patch(case / "patch.yaml")
    ran, before = run_case(case), (case / "before.py").read_bytes()
    assert ran.back == before
    # Code of the user's carries no mark; only the journal takes it out.
    if all(isinstance(edit.action, Probe) for edit in patch.edits):
        assert ran.left == before


def test_there_are_cases() -> None:
    """The folder was found: a suite that ran nothing must not pass."""
    assert len(CASES) > 90
