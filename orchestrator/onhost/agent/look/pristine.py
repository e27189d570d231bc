"""Whether a whole package is as its install made it; only its Python files are looked at."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, Optional, Tuple

from ..proc import procfs
from . import origin

Row = Dict[str, Any]


def check_package(root: str, package: str, dist_info: Optional[str]) -> Row:
    """Compare every Python file of a package with a wheel's RECORD or its checkout's HEAD.

    `by` says what it was compared with (`RECORD`, `HEAD 1a2b3c4` or `None`), `files` how many
    there are, `changed`, `missing` and `extra` name those that differ, below `root`.
    """
    folder = os.path.join(root, package)
    present = {os.path.relpath(path, root): path for path in _walk(folder)}
    wanted, by = _read_wanted(root, package, dist_info, folder)
    row: Row = {"by": by, "files": len(present), "changed": [], "missing": [], "extra": []}
    if by is None:
        return row
    row["missing"] = sorted(set(wanted) - set(present))
    row["extra"] = sorted(set(present) - set(wanted))
    for file in sorted(set(wanted) & set(present)):
        data = procfs.read_bytes(present[file])
        if data is None or not _matches(wanted[file], data):
            row["changed"].append(file)
    return row


def _read_wanted(
    root: str, package: str, dist_info: Optional[str], folder: str
) -> Tuple[Dict[str, str], Optional[str]]:
    """File below `root` to the checksum that it should have."""
    prefix = package + "/"
    if dist_info is not None:
        record = origin.read_record(dist_info)
        listed = {f: h for f, h in record.items() if f.startswith(prefix) and f.endswith(".py")}
        if listed:
            return {f: h for f, h in listed.items() if h}, "RECORD"
    return origin.list_checkout(root, folder)


def _matches(entry: str, data: bytes) -> bool:
    if "=" in entry:
        return origin.matches_record(entry, data) is not False
    return origin.name_blob(data, len(entry)) == entry


def _walk(folder: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if name.endswith(".py"):
                yield os.path.join(parent, name)
