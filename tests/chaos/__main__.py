"""`make chaos`: everything that the slices of `make test` are slices of, and its figures.

`python -m tests.chaos [STEPS]`; `SGLDBG_SEED` chooses another order. Exits 1 on a difference.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.chaos.disks import KINDS
from tests.chaos.run import SEED, run_part

_STEPS = 100_000
# Hypothesis keeps what it has seen; a process of its own for each part keeps that small.
_STEPS_EACH = 10_000


def _matrix(where: Path, kinds: tuple[str, ...]) -> int:
    found = run_part("matrix", SEED, 0, where / kinds[0], *kinds)
    failed = found["failures"]
    absent = [kind for kind in kinds if kind not in found["kinds"]]
    print(
        f"kill matrix on {', '.join(found['kinds']) or 'the machine’s own disk'}:"
        f" {found['tried']} cases, {found['kills']} kills and cuts, {found['tried']} trees and"
        f" servers compared, {len(failed)} differences, {found['seconds']:.0f} s",
        flush=True,
    )
    if absent:
        print(f"  not tried, since this machine lets us mount none: {', '.join(absent)}")
    for case, problems in failed.items():
        print(f"  {case}: {'; '.join(problems)}")
    if found["missing"]:
        print(f"  steps at which nothing was broken: {', '.join(found['missing'])}")
    return len(failed) + len(found["missing"])


def _fuzz(where: Path, steps: int) -> int:
    counted = ("steps", "rounds", "kills", "trees", "patched", "seconds")
    totals: dict[str, Any] = dict.fromkeys(counted, 0)
    while totals["steps"] < steps:
        number = SEED * 1000 + totals["rounds"]
        part = min(_STEPS_EACH, steps - totals["steps"])
        found = run_part("fuzz", number, part, where / f"fuzz{number}")
        totals = {key: totals[key] + found[key] for key in totals}
        if found["failure"]:
            print(f"fuzz with seed {number} after {found['steps']} steps: {found['failure']}")
            return 1
    print(
        f"fuzz: {totals['steps']} steps in {totals['rounds']} rounds, {totals['patched']} of them"
        f" with patched files, {totals['kills']} kills, {totals['trees']} trees compared,"
        f" 0 differences, {totals['seconds']:.0f} s",
        flush=True,
    )
    return 0


def _sweep() -> int:
    """The end of the process at every line and at every call that changes a file."""
    environ = {**os.environ, "SLICES": "1", "SGLDBG_SEED": str(SEED)}
    words = ["-m", "pytest", "-q", "-rP", "--timeout", "3600", "-k", "crash_at_any_point"]
    done = subprocess.run(
        [sys.executable, *words, "tests/onhost/transaction/test_crash.py"],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if " points" in line]
    print(
        "\n".join(["crash sweep:", *lines] if done.returncode == 0 else [done.stdout]), flush=True
    )
    return done.returncode


def main(steps: int) -> int:
    """Run every part, whatever became of the others; the number of things that went wrong."""
    print(f"SGLDBG_SEED={SEED}", flush=True)
    with tempfile.TemporaryDirectory(prefix="sgldbg-chaos-") as name:
        where = Path(name)
        wrong = _sweep() + _matrix(where, KINDS[:1]) + _matrix(where, KINDS[1:])
        wrong += _fuzz(where, steps)
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else _STEPS) != 0)
