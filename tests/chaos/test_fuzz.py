"""A slice of the stateful fuzz; `make chaos` takes 100,000 steps of it."""

from __future__ import annotations

import pytest

from tests.chaos.run import SEED, run_part

_STEPS = 200


@pytest.mark.timeout(300)
def test_a_slice_of_the_fuzz(tmp_path):
    """Two controllers, a third party and ends at any line: never torn, never lost, undone."""
    found = run_part("fuzz", SEED, _STEPS, tmp_path / "hosts")
    print(f"SGLDBG_SEED={SEED}: {found['steps']} steps of the fuzz, {found['kills']} kills")
    assert found["failure"] == ""
    assert found["steps"] >= _STEPS
