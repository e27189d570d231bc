"""Every folder of `cases` holds a source, a patch, and what the engine makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    """With no journal, taking probes out of a patched file gives the original bytes."""
    patch = read_patch(case / "patch.yaml")
    if any(type(edit.action).__name__ == "Insert" for edit in patch.edits):
        return  # inserted code carries no mark; only the journal takes it out
    assert run_case(case).left == (case / "before.py").read_bytes()


def test_there_are_cases() -> None:
    """The folder was found: a suite that ran nothing must not pass."""
    assert len(CASES) > 90
