"""The cache of SGLang wheels, and the files in them that patches are tried on."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

# Each of these changed something near the seed's statement; the first is the oldest supported.
RELEASES = (
    "0.4.5",
    "0.4.6.post5",
    "0.4.9",
    "0.5.2",
    "0.5.6",
    "0.5.9",
    "0.5.16",
    "0.5.23",
)

FETCH = "python -m tests.releases.fetch"


def cache_dir() -> Path:
    """Where the wheels are kept: `$SGLDBG_CACHE/wheels`, else `~/.cache/sgldbg/wheels`."""
    return Path(os.environ.get("SGLDBG_CACHE") or Path.home() / ".cache" / "sgldbg") / "wheels"


def find_wheel(version: str) -> Path | None:
    """The cached wheel of a release, or `None`."""
    found = sorted(cache_dir().glob(f"sglang-{version}-*.whl"))
    return found[0] if found else None


def read_release(version: str, file: str) -> bytes:
    """A file of a release; fails with the command that fetches what is missing."""
    data = read_files(version, (file,))[file]
    assert data is not None, f"sglang {version} has no {file}"
    return data


def read_files(version: str, files: Sequence[str]) -> dict[str, bytes | None]:
    """These files of a release, `None` for each that it does not have."""
    wheel = find_wheel(version)
    if wheel is None:
        raise FileNotFoundError(f"sglang {version} is not in {cache_dir()}: run `{FETCH}`")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        return {file: archive.read(file) if file in held else None for file in files}
