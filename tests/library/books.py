"""The library of patches, read once for its tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from orchestrator.model.patch import Patch
from orchestrator.spec.patch import read_patch

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "patches"
PAGE = ROOT / "docs" / "reference" / "library.md"
NAMES = tuple(sorted(path.stem for path in LIBRARY.glob("*.yaml")))


@cache
def read(name: str) -> Patch:
    """A patch of the library."""
    return read_patch(LIBRARY / f"{name}.yaml")


def comment_of(name: str) -> str:
    """The text above a patch's first key, without its signs."""
    head = (LIBRARY / f"{name}.yaml").read_text("utf-8").split("\npatch:")[0]
    return "\n".join(line.removeprefix("#").strip() for line in head.splitlines())
