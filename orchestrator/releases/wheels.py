"""Wheels of releases, fetched from the package index once and kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from orchestrator.errors import FileError, FileErrors

_TIMEOUT_S = 600.0
# Only the sources in it are read, so any Python and any machine will do; later releases are built
# for one, and these are tried in turn.
_PYTHONS = ("3.11", "3.12", "3.13", "3.10")
_PLATFORMS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64",
              "manylinux2014_x86_64")  # fmt: skip

_NEAREST = 2  # releases that are named on either side of one that is not there
_LONGEST_LINE = 300  # characters of a line of pip's


def cache_dir() -> Path:
    """Where wheels are kept: `$SGLDBG_CACHE/wheels`, else `~/.cache/sgldbg/wheels`."""
    return Path(os.environ.get("SGLDBG_CACHE") or Path.home() / ".cache" / "sgldbg") / "wheels"


def find_wheel(package: str, version: str, cache: Path) -> Path | None:
    """The wheel of a release in the cache, if it is there."""
    found = sorted(cache.glob(f"{package}-{version}-*.whl"))
    return found[0] if found else None


def fetch_wheel(package: str, version: str, cache: Path) -> Path:
    """The wheel of a release, downloaded with pip where the cache has none.

    It appears under its name only when it is whole; several runs at once do no harm. Raises
    `FileErrors` with what pip said last where there is no such release, or no way to the index.
    """
    found = find_wheel(package, version, cache)
    if found is not None:
        return found
    cache.mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as scratch:
        for python in _PYTHONS:
            ran = _download(package, version, python, scratch)
            wheels = sorted(Path(scratch).glob("*.whl"))
            if ran.returncode == 0 and wheels:
                target = cache / wheels[0].name
                wheels[0].replace(target)
                return target
            said.append(ran.stderr or ran.stdout)
    raise FileErrors([explain(package, version, said)])


def explain(package: str, version: str, said: Sequence[str]) -> FileError:
    """Why a release could not be had, from what pip said each time.

    Of one that does not exist: the next ones below and above it, of well over a hundred that pip
    lists. Else pip's last lines, without its warnings, which are of other things.
    """
    by_path = "name an unpacked wheel or a checkout by its path instead"
    near = _nearest(version, _versions_listed(said))
    if near:
        message = f"the package index has no {package} {version}"
        hint = f"those next to it: {', '.join(f'`{v}`' for v in near)}"
        return FileError(message, hints=[hint, by_path])
    lines = [line.strip() for text in said[-1:] for line in text.splitlines()]
    told = [line[:_LONGEST_LINE] for line in lines if line and not line.startswith("WARNING:")]
    message = f"{package} {version} could not be fetched from the package index"
    return FileError(message, notes=told[-3:], hints=[by_path])


def _versions_listed(said: Sequence[str]) -> set[Version]:
    found: set[Version] = set()
    for text in said:
        listed = re.search(r"\(from versions: ([^)]*)\)", text)
        for word in listed[1].split(", ") if listed else ():
            try:
                found.add(Version(word))
            except InvalidVersion:  # `none`
                continue
    return found


def _nearest(version: str, listed: set[Version]) -> list[Version]:
    wanted = Version(version)
    if wanted in listed:  # it is there, and something else went wrong
        return []
    below = sorted(v for v in listed if v < wanted)[-_NEAREST:]
    above = sorted(v for v in listed if v > wanted)[:_NEAREST]
    return [*below, *above]


def _download(
    package: str, version: str, python: str, folder: str
) -> subprocess.CompletedProcess[str]:
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
               "--python-version", python, *platforms, "--disable-pip-version-check", "--quiet",
               "--no-input", "--dest", folder, f"{package}=={version}"]  # fmt: skip
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"pip took longer than {_TIMEOUT_S:g} s")
