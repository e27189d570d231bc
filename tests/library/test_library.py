"""Every patch of the library says what it is for, and keeps its cases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli.checking.casework import run_case
from orchestrator.model.patch import Probe
from orchestrator.session.engine import Engine
from orchestrator.spec.cases import read_cases
from tests.library.books import LIBRARY, NAMES, PAGE, comment_of, read


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One warm worker for all cases."""
    with Engine() as warm:
        yield warm


@pytest.mark.parametrize("name", NAMES)
def test_a_patch_says_what_it_is_for(name: str) -> None:
    """A question, the symptom that leads to it, and words on the values stand in its file."""
    patch = read(name)
    assert patch.about.endswith("?")
    comment = comment_of(name)
    assert "Symptom" in comment, "the comment above names no symptom"
    assert len(comment) > 200
    probes = [edit.action for edit in patch.edits if isinstance(edit.action, Probe)]
    assert probes, "a patch of the library answers with values"
    assert all(probe.capture for probe in probes)


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_cannot_flood(name: str) -> None:
    """Each probe is bounded by keys or by a limit, whatever the server does."""
    for edit in read(name).edits:
        if isinstance(edit.action, Probe):
            assert edit.action.once_per or edit.action.limit or edit.action.rate_per_s


@pytest.mark.parametrize("name", NAMES)
def test_a_patch_keeps_its_cases(engine: Engine, name: str) -> None:
    """Each has one at least, and is shown by a case at every place that it names."""
    patch = read(name)
    cases = read_cases(patch)
    problems = [problem for c in cases if (problem := run_case(engine, patch, c)) is not None]
    shown = {file for case in cases if case.error is None for file in case.before}
    assert [(problem.message, problem.notes) for problem in problems] == []
    assert shown == set(patch.files())


def test_each_folder_of_cases_belongs_to_a_patch() -> None:
    """A case whose patch was renamed would never run again."""
    assert {path.name for path in (LIBRARY / "cases").iterdir() if path.is_dir()} == set(NAMES)


def test_the_page_lists_the_library() -> None:
    """Each patch has a row with its own question, in one of the tables, and no other has."""
    rows = re.findall(r"^\| \[`([a-z0-9-]+)`\]\((\S+)\) \| (.+?) \|", PAGE.read_text("utf-8"), re.M)
    assert {name: about for name, _, about in rows} == {name: read(name).about for name in NAMES}
    assert len(rows) == len(NAMES)
    for _, target, _ in rows:
        assert (PAGE.parent / Path(target)).is_file(), target
