"""Downloads the wheels that the tests of releases need: `python -m tests.releases.fetch`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.releases.wheels import RELEASES, cache_dir, find_wheel

_TRIES = 4


def fetch(version: str) -> Path:
    """The wheel of a release in the cache, downloaded where it is not there yet.

    It appears under its name only when it is whole; several runs at once do no harm.
    """
    found = find_wheel(version)
    if found is not None:
        return found
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".fetch-") as scratch:
        _download(version, scratch)
        wheel = next(Path(scratch).glob(f"sglang-{version}-*.whl"))
        target = cache_dir() / wheel.name
        os.replace(wheel, target)
    return target


def _download(version: str, directory: str) -> None:
    # The same wheel on every machine: only its sources are read.
    choice = ["--python-version", "3.11", "--platform", "manylinux_2_34_x86_64"]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
               *choice, "--disable-pip-version-check", "--quiet", "--dest", directory,
               f"sglang=={version}"]  # fmt: skip
    for attempt in range(1, _TRIES + 1):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode == 0:
            return
        if attempt < _TRIES:
            time.sleep(2**attempt)
    sys.stderr.write(ran.stdout + ran.stderr)
    raise SystemExit(f"sglang {version} could not be downloaded")


def main() -> None:
    """Fetch every release of the tests, one line each."""
    for version in RELEASES:
        wheel = fetch(version)
        print(f"{wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
