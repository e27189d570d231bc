"""A rotating slice of `make sweep`: other files each day, or those of `SGLDBG_SEED`."""

from __future__ import annotations

import os
import time

import pytest

from orchestrator.releases.source import open_release
from orchestrator.releases.wheels import cache_dir
from tests.sweep.sweeping import sweep

pytestmark = pytest.mark.releases

PARTS = 80


def test_a_slice_of_sglang() -> None:
    """No byte differs once the probes are out, and most files have a place for one."""
    seed = int(os.environ.get("SGLDBG_SEED") or time.time() // 86_400)
    print(f"SGLDBG_SEED={seed}")
    release = open_release("0.5.23", "sglang", cache_dir())
    swept = sweep(release, "sglang", seed, seed % PARTS, PARTS, jobs=1)
    print(swept.placed, swept.kinds, swept.refused)
    assert swept.wrong == []
    assert swept.placed > sum(swept.refused.values())
