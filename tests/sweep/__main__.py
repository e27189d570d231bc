"""`make sweep`: every file of SGLang 0.5.23 and of SymPy gets a probe, and loses it again."""

from __future__ import annotations

import argparse
import os
import time

from orchestrator.releases.source import open_release
from orchestrator.releases.wheels import cache_dir
from tests.sweep.sweeping import sweep

# SymPy is large, old, and has the deepest expressions and longest literals of the packages tried.
PACKAGES = (("sglang", "0.5.23"), ("sympy", "1.14.0"))


def main() -> int:
    """Sweep and tell; 1 where a byte differed, a proof failed or the engine gave up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SGLDBG_SEED") or 0))
    parser.add_argument("--parts", type=int, default=1, help="take one of so many parts")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    wrong: list[str] = []
    for package, version in PACKAGES:
        began = time.monotonic()
        release = open_release(version, package, cache_dir())
        swept = sweep(release, package, asked.seed, asked.part, asked.parts, asked.jobs)
        total = swept.placed + sum(swept.refused.values())
        seconds = time.monotonic() - began
        print(f"{package} {version}: {total} files in {seconds:.0f} s, seed {asked.seed}")
        print(f"  {swept.placed:6} placed, proven and taken out again: {dict(swept.kinds)}")
        for reason, count in swept.refused.most_common():
            print(f"  {count:6} {reason}")
        for line in swept.wrong:
            print(f"  WRONG  {line}")
        wrong += swept.wrong
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
