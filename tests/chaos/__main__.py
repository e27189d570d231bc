"""`make chaos`: everything that the slices of `make test` are slices of, and its figures.

`python -m tests.chaos [STEPS]`; `SGLDBG_SEED` chooses another order. Exits 1 on a difference.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

from tests.chaos.disks import KINDS
from tests.chaos.run import SEED, run_part

_STEPS = 100_000
# Hypothesis keeps what it has seen; a process of its own for each part keeps that small.
_STEPS_EACH = 10_000


@dataclass(frozen=True)
class Tally:
    """What a part tried, how often it ended or cut something, and what was not as before."""

    cases: int = 0
    kills: int = 0
    trees: int = 0
    differences: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        return (
            f"{self.cases} cases, {self.kills} kills and cuts, {self.trees} trees compared,"
            f" {self.differences} differences"
        )


def matrix(where: Path, kinds: tuple[str, ...]) -> Tally:
    """All lines times all faults, on these file systems in turn."""
    found = run_part("matrix", SEED, 0, where / kinds[0], *kinds)
    print(f"on {', '.join(found['kinds']) or 'the machine’s own disk'}")
    absent = [kind for kind in kinds if kind not in found["kinds"]]
    if absent:
        print(f"  not tried, since this machine lets us mount none: {', '.join(absent)}")
    for case, problems in found["failures"].items():
        print(f"  {case}: {'; '.join(problems)}")
    if found["missing"]:
        print(f"  steps at which nothing was broken: {', '.join(found['missing'])}")
    tried, wrong = found["tried"], len(found["failures"]) + len(found["missing"])
    return Tally(tried, found["kills"], tried, wrong)


def fuzz(where: Path, steps: int) -> Tally:
    """So many steps, up to the first that goes wrong."""
    total, rounds, patched = Tally(), 0, 0
    while total.cases < steps and not total.differences:
        number = SEED * 1000 + rounds
        part = min(_STEPS_EACH, steps - total.cases)
        found = run_part("fuzz", number, part, where / f"fuzz{number}")
        failed = found["failure"] != ""
        total += Tally(found["steps"], found["kills"], found["trees"], failed)
        rounds, patched = rounds + found["rounds"], patched + found["patched"]
        if failed:
            print(f"  seed {number} after {found['steps']} steps: {found['failure']}")
    print(f"  {rounds} rounds; files were patched after {patched} of the steps")
    return total


def sweep() -> Tally:
    """The end of the process within every line and before every call that changes a file."""
    words = ("-k", "crash_at_any_point", "tests/onhost/transaction/test_crash.py")
    output, failed = _run_tests(*words, SLICES="1")
    points = [int(tried) for tried in re.findall(r" (\d+) of \d+ points$", output, re.MULTILINE)]
    return Tally(sum(points), sum(points), sum(points), failed)


def sessions() -> Tally:
    """Whole sessions whose controller ends at every stage, or whose cable breaks."""
    output, failed = _run_tests("-m", "chaos", "tests")
    passed = sum(map(int, re.findall(r"\b(\d+) passed", output)))
    return Tally(passed + failed, passed + failed, passed, failed)


def _run_tests(*words: str, **environ: str) -> tuple[str, int]:
    """Their output, and how many failed; 1 also where they could not run."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rP", "--timeout", "3600", *words],
        env={**os.environ, "SGLDBG_SEED": str(SEED), **environ},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return done.stdout, 0
    print(done.stdout)
    return done.stdout, sum(map(int, re.findall(r"\b(\d+) (?:failed|error)", done.stdout))) or 1


def main(steps: int) -> int:
    """Run every part, whatever became of the others; the number of differences."""
    print(f"SGLDBG_SEED={SEED}", flush=True)
    total = Tally()
    with tempfile.TemporaryDirectory(prefix="sgldbg-chaos-") as name:
        where = Path(name)
        parts: dict[str, Callable[[], Tally]] = {
            "crash sweep": sweep,
            "kill matrix": lambda: matrix(where, KINDS[:1]),
            "kill matrix on other disks": lambda: matrix(where, KINDS[1:]),
            "fuzz": lambda: fuzz(where, steps),
            "sessions": sessions,
        }
        for title, run in parts.items():
            began = time.monotonic()
            tally = run()
            total += tally
            print(f"{title}: {tally}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"all of it: {total}")
    return total.differences


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else _STEPS) != 0)
