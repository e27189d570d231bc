"""A slice of the kill matrix; `make chaos` runs all of it."""

from __future__ import annotations

import pytest

from tests.chaos.disks import KINDS
from tests.chaos.run import SEED, run_part

_CASES = 4


@pytest.mark.timeout(300)
def test_a_slice_of_the_kill_matrix(tmp_path):
    """Whatever breaks at whatever step, on any file system: the host is as it was."""
    found = run_part("matrix", SEED, _CASES, "0/1", tmp_path / "hosts", *KINDS)
    print(f"SGLDBG_SEED={SEED}: {found['tried']} of {found['cases']} cases of the kill matrix")
    missing = [kind for kind in KINDS if kind not in found["kinds"]]
    if missing:
        print(f"not tried, since this machine lets us mount none: {', '.join(missing)}")
    assert found["failures"] == {}
    assert found["missing"] == [], "steps of the code at which nothing is broken"
    assert found["tried"] == _CASES
