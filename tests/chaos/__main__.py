"""`make chaos`: everything that the slices of `make test` are slices of, and its figures.

`python -m tests.chaos [--jobs N] [--steps N]`; `SGLDBG_SEED` chooses another order. Its pieces know
nothing of each other and run side by side: most of them wait, for a lease or for a process. Exits 1
on a difference.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

from tests.chaos.disks import KINDS
from tests.chaos.run import SEED, run_part

# A part in shares that are small enough to be spread evenly.
_SHARES = 8
# Hypothesis keeps what it has seen; a process of its own for so many steps keeps that small.
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


def matrix(where: Path, kinds: tuple[str, ...], share: int) -> Tally:
    """One share of all lines times all faults, on these file systems in turn."""
    directory = where / f"{kinds[0]}{share}"
    found = run_part("matrix", SEED, 0, f"{share}/{_SHARES}", directory, *kinds)
    absent = [kind for kind in kinds if kind not in found["kinds"]]
    if absent and not share:
        print(f"  not tried, since this machine lets us mount none: {', '.join(absent)}")
    for case, problems in found["failures"].items():
        print(f"  {case}: {'; '.join(problems)}")
    missing = [] if share else found["missing"]
    if missing:
        print(f"  steps at which nothing was broken: {', '.join(missing)}")
    tried, wrong = found["tried"], len(found["failures"]) + len(missing)
    return Tally(tried, found["kills"], tried, wrong)


def fuzz(where: Path, number: int, steps: int) -> Tally:
    """So many steps of one seed, up to the first that goes wrong."""
    found = run_part("fuzz", number, steps, where / f"fuzz{number}")
    if found["failure"]:
        print(f"  seed {number} after {found['steps']} steps: {found['failure']}")
    return Tally(found["steps"], found["kills"], found["trees"], found["failure"] != "")


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


def _pieces(where: Path, steps: int) -> Iterator[tuple[str, Callable[[], Tally]]]:
    """Each with the part it belongs to; first those that cannot be shared out."""
    yield "crash sweep", sweep
    yield "sessions", sessions
    for share in range(_SHARES):
        yield "kill matrix", partial(matrix, where, KINDS[:1], share)
        yield "kill matrix on other disks", partial(matrix, where, KINDS[1:], share)
    for first in range(0, steps, _STEPS_EACH):
        seed = SEED * 1_000_000 + first
        yield "fuzz", partial(fuzz, where, seed, min(_STEPS_EACH, steps - first))


def main(steps: int, jobs: int) -> int:
    """Run every piece, whatever became of the others; the number of differences."""
    print(f"SGLDBG_SEED={SEED}", flush=True)
    began, totals = time.monotonic(), dict[str, Tally]()
    with (
        tempfile.TemporaryDirectory(prefix="sgldbg-chaos-") as name,
        ThreadPoolExecutor(jobs) as pool,
    ):
        pieces = [(part, pool.submit(run)) for part, run in _pieces(Path(name), steps)]
        for part, piece in pieces:
            totals[part] = totals.get(part, Tally()) + piece.result()
    for part, tally in totals.items():
        print(f"{part}: {tally}")
    total = sum(totals.values(), Tally())
    print(f"all of it: {total}, {time.monotonic() - began:.0f} s")
    return total.differences


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="of the fuzz")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    sys.exit(main(asked.steps, asked.jobs) != 0)
