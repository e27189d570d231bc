"""Wrong files, each with the whole message that it must give."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.diagnostics import render
from orchestrator.errors import FileErrors
from orchestrator.spec.inventory import read_inventory
from orchestrator.spec.patch import read_patch
from orchestrator.spec.project import load_project
from orchestrator.spec.session import read_session

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.name for path in CASES.iterdir())


def read_case() -> None:
    """Read the case of the working directory the way a command would."""
    if Path("session.yaml").exists():
        if Path("inventory.yaml").exists():
            load_project("session.yaml")
        else:
            read_session("session.yaml")
    elif Path("patch.yaml").exists():
        read_patch("patch.yaml")
    else:
        read_inventory("inventory.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong file gives exactly this text: all its problems, in order of place."""
    monkeypatch.chdir(CASES / name)
    with pytest.raises(FileErrors) as caught:
        read_case()
    assert render(caught.value) + "\n" == Path("error.txt").read_text(encoding="utf-8")


def test_cases_are_complete() -> None:
    """Every case has a file to read and its message, and there are enough of them."""
    assert len(NAMES) >= 30
    for name in NAMES:
        files = {path.name for path in (CASES / name).iterdir()}
        assert "error.txt" in files
        assert files & {"inventory.yaml", "patch.yaml", "session.yaml"}
