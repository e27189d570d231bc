"""What the import system would run is found without importing anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orchestrator.onhost.agent import effective


@pytest.mark.parametrize("marked", [True, False], ids=["package", "namespace"])
def test_a_module_is_found_below_packages_of_both_kinds(tmp_path: Path, marked: bool) -> None:
    """`sglang/srt` has no `__init__.py`: a needle below such a folder is found all the same."""
    folder = tmp_path / "shop" / "srt" / "models"
    folder.mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").write_text("raise SystemExit('imported')\n")
    if marked:
        for inner in (folder, folder.parent):
            (inner / "__init__.py").write_text("")
    (folder / "llama.py").write_text("def f():\n    return 'needle-1'\n")

    found = effective.find_needles(
        sys.executable,
        [
            {"file": "shop/srt/models/llama.py", "needle": "needle-1"},
            {"file": "shop/srt/models/llama.py", "needle": "needle-2"},
            {"file": "shop/srt/models/other.py", "needle": "needle-1"},
        ],
        {"PYTHONPATH": str(tmp_path)},
    )

    assert found == [
        {"file": "shop/srt/models/llama.py", "found": True, "why": ""},
        {
            "file": "shop/srt/models/llama.py",
            "found": False,
            "why": f"{folder / 'llama.py'} is imported without it",
        },
        {
            "file": "shop/srt/models/other.py",
            "found": False,
            "why": "the import system does not find it",
        },
    ]
