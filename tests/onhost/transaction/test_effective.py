"""What the import system would run is found without importing anything."""

from __future__ import annotations

import py_compile
import sys
from pathlib import Path

import pytest

from orchestrator.onhost.agent.files import effective


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


def test_without_a_needle_the_code_is_compared(tmp_path: Path) -> None:
    """Code without a mark of ours is effective where nothing else would be imported."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    source = package / "model.py"
    source.write_text("x = 1\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compiled = py_compile.compile(str(source), invalidation_mode=mode)
    needles = [{"file": "shop/model.py", "needle": ""}]
    environ = {"PYTHONPATH": str(tmp_path)}
    (found,) = effective.find_needles(sys.executable, needles, environ)
    assert found["found"]
    source.write_text("x = 2\n")
    (found,) = effective.find_needles(sys.executable, needles, environ)
    assert found["why"] == f"{source} is imported from other bytecode"
    Path(str(compiled)).unlink()
    (found,) = effective.find_needles(sys.executable, needles, environ)
    assert found["found"]
