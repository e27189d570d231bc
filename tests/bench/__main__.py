"""Runs the benchmarks of this folder one after another: `python -m tests.bench [NAME ...]`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 1200


def names() -> list[str]:
    """Every benchmark, by the name of its file."""
    here = Path(__file__).parent
    return sorted(path.stem for path in here.glob("*.py") if not path.stem.startswith("_"))


def main(wanted: list[str]) -> int:
    """Run them in processes of their own, so that none inherits another's imports or garbage."""
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        print(f"error: no benchmark {', '.join(unknown)}; there are {', '.join(names())}")
        return 2
    failed = []
    for name in wanted or names():
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"tests.bench.{name}"]
        if subprocess.run(command, timeout=TIMEOUT_S, check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
