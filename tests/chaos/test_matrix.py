"""A slice of the kill matrix; `make chaos` runs all of it."""

from __future__ import annotations

import pytest

from tests.chaos.run import SEED, run_part

_CASES = 9


@pytest.mark.timeout(300)
def test_a_slice_of_the_kill_matrix(tmp_path):
    """Whatever breaks at whatever step: the host is as it was, and nothing of ours is left."""
    found = run_part("matrix", SEED, _CASES, tmp_path / "hosts")
    print(f"SGLDBG_SEED={SEED}: {found['tried']} of {found['cases']} cases of the kill matrix")
    if not found["disks"]:
        print("not root: no disk was filled or made read-only")
    assert found["failures"] == {}
    assert found["missing"] == [], "steps of the code at which nothing is broken"
    assert found["tried"] == _CASES
