"""The whole library on the sources of real releases."""

from __future__ import annotations

import ast
import hashlib
import re

import pytest

from orchestrator.errors import PatchError
from orchestrator.model.patch import Insert
from orchestrator.patching.making.splice import remove_insertions
from tests.library.books import NAMES, PAGE, read
from tests.releases.matrix import NOT_THERE, cell_of, fitting, plan_of, read_table, view_of
from tests.releases.wheels import RELEASES

pytestmark = pytest.mark.releases

# Those that the library promises to fit; 0.4.5 is tried beside them.
PROMISED = tuple(release for release in RELEASES if release != "0.4.5")


# Up to 25 large files are parsed, edited and proven at once.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", RELEASES)
def test_all_patches_of_a_release_together(version: str) -> None:
    """Each fits at the places that the page names, compiles, and comes out without a trace."""
    patches = fitting(version)
    view = view_of(version, patches)
    plan = plan_of(view, patches)

    assert {p.name: cell_of(plan, p) for p in patches} == {
        name: cell for name, cell in read_table()[version].items() if cell != NOT_THERE
    }
    for file in plan.files:
        if file.before_sha256 is None:
            continue
        before = view.files[file.file]
        assert before is not None
        ast.parse(file.after)
        assert remove_insertions(file.after, file.insertions) == before
        assert hashlib.sha256(before).hexdigest() == file.before_sha256


@pytest.mark.parametrize("version", RELEASES)
def test_others_are_refused(version: str) -> None:
    """What the page says does not fit a release does not fit it, and says that it is not there."""
    for name, cell in read_table()[version].items():
        if cell == NOT_THERE:
            with pytest.raises(PatchError) as caught:
                plan_of(view_of(version, [read(name)]), [read(name)])
            assert caught.value.state in ("not found", "out of range"), name


def test_every_patch_fits_five_releases() -> None:
    """At least five of those promised, or every one from where its code begins; reasons named."""
    table = read_table()
    reasons = PAGE.read_text("utf-8").split("the code is not there:")[1]
    for name in NAMES:
        fits = [version for version in PROMISED if table[version][name] != NOT_THERE]
        assert len(fits) >= 5 or fits == list(PROMISED[-len(fits) :]), name
        missing = any(cells[name] == NOT_THERE for cells in table.values())
        assert bool(re.search(rf"^\| `{name}` \|", reasons, re.M)) == missing, name


def test_places_do_not_differ_by_version_number_alone() -> None:
    """Anchors live: no patch has as many places as releases, and none asks for an upper bound."""
    for name in NAMES:
        patch = read(name)
        assert "<" not in patch.versions, name
        for edit in patch.edits:
            assert len(edit.where) <= 4, name
            assert isinstance(edit.action, Insert) or edit.action.capture
