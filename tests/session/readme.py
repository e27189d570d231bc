"""The README as the tests read it: its commands, and the answer that it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.session.world import Project

README = Path(__file__).resolve().parents[2] / "README.md"


def read_blocks(kind: str) -> list[str]:
    """Its blocks of this kind, in order."""
    # Every second part lies between two fences and begins with its kind.
    inside = re.split(r"^```", README.read_text(), flags=re.M)[1::2]
    blocks = [block.partition("\n") for block in inside]
    return [text for name, _, text in blocks if name == kind]


def read_lines() -> list[str]:
    """Every line that a reader is to type."""
    return [line for block in read_blocks("console") for line in block.splitlines() if line]


def read_commands() -> list[list[str]]:
    """The words of every command of sgldbg among them."""
    lines = [shlex.split(line, comments=True) for line in read_lines()]
    return [words[1:] for words in lines if words[0] == "sgldbg"]


def read_answer() -> str:
    """The whole answer that it shows."""
    (block,) = read_blocks("")
    return block


def go(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand where it tells its reader to, with the files that it names."""
    project.write()
    project.session_file.rename(project.session_file.with_name("eagle3-zero-acceptance.yaml"))
    monkeypatch.chdir(project.folder)
