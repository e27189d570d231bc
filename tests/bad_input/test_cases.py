"""Every folder of `cases` is the demonstration's project with something wrong in it.

`case.txt` holds the command, its exit code, and what is changed in which file; `error.txt` is the
whole of stderr.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bad_input.conftest import Run
from tests.bad_input.project import Project, check

CASES = sorted(path.parent for path in Path(__file__).parent.glob("cases/*/case.txt"))


@dataclass(frozen=True)
class Case:
    """A case as it stands in its file."""

    words: tuple[str, ...]
    code: int
    edits: tuple[tuple[str, str, str], ...]


def read_case(folder: Path) -> Case:
    """`$ command`, `exit N`, then edits: `file: old => new`, each on a line."""
    command, code, *rest = (folder / "case.txt").read_text().splitlines()
    edits = []
    for line in rest:
        file, _, change = line.partition(": ")
        old, arrow, new = change.partition(" => ")
        assert arrow, line
        edits.append((file, old, new.replace("\\n", "\n")))
    return Case(tuple(command.split()[2:]), int(code.split()[1]), tuple(edits))


@pytest.mark.parametrize("folder", CASES, ids=lambda path: path.name)
def test_case(folder: Path, project: Project, sgldbg: Run) -> None:
    """The command ends with this code and this text, and nothing changed on any host."""
    case = read_case(folder)
    before = project.cluster.snapshot()
    for extra in folder.glob("*.yaml"):
        (project.folder / "patches" / extra.name).write_bytes(extra.read_bytes())
    for file, old, new in case.edits:
        project.replace(file, project.fill(old), project.fill(new))

    ran = sgldbg(project, *case.words)

    check(ran, "error", case.code, folder)
    assert project.cluster.snapshot() == before
    sessions = [p for host in project.cluster.hosts for p in host.home.rglob("sessions/*")]
    assert sessions == []
