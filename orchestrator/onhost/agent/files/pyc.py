"""Compiled files of a module: set aside like an original while planned bytes are in its place."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from typing import Any, Dict, List, Optional, Sequence

from ..held import dirs
from ..held.facts import ORIG, PlannedFile, beside
from ..held.journal import sync_dir

Aside = Dict[str, Any]


def find_folders(planned: PlannedFile, prefix: Optional[str]) -> List[str]:
    """Every directory that may hold compiled files of this module, whether it exists or not.

    By the path as imported and by the real one, beside the source and below the cache prefix:
    which of them an interpreter uses depends on its environment.
    """
    if not planned.path.endswith(".py"):
        return []
    folders = []
    for source in (planned.shown, planned.path):
        folder = os.path.dirname(source)
        folders.append(os.path.join(folder, "__pycache__"))
        if prefix:
            folders.append(os.path.join(prefix, folder.lstrip("/")))
    return list(dict.fromkeys(map(os.path.realpath, folders)))


def list_module(folder: str, planned: PlannedFile) -> List[str]:
    """Names of the module's compiled files there, of any interpreter and optimisation.

    An interpreter that was killed while it wrote one leaves a name with a number behind.
    """
    stem = os.path.basename(planned.shown)[:-3]
    pattern = re.compile(re.escape(stem) + r"\.[^.]+(\.opt-[^.]+)?\.pyc(\.\d+)?$")
    try:
        return sorted(name for name in os.listdir(folder) if pattern.match(name))
    except FileNotFoundError:
        return []


def record(planned: PlannedFile, prefix: Optional[str]) -> List[Aside]:
    """What `set_aside` will move, and how the directories are before that."""
    found = []
    for folder in find_folders(planned, prefix):
        files = []
        for name in list_module(folder, planned):
            files.append({"name": name, "inode": os.stat(os.path.join(folder, name)).st_ino})
        found.append({"dir": folder, "before": dirs.record(folder), "files": files})
    return found


def set_aside(asides: Sequence[Aside]) -> None:
    """Move the recorded files out of the interpreter's sight, each within its directory."""
    for aside in asides:
        for item in aside["files"]:
            path = os.path.join(aside["dir"], item["name"])
            with contextlib.suppress(FileNotFoundError):  # a cache, anybody may clear it
                os.rename(path, beside(path, ORIG))
        if aside["files"]:
            sync_dir(aside["dir"])


def put_back(planned: PlannedFile, asides: Sequence[Aside]) -> None:
    """Remove what was compiled meanwhile and move the recorded files back; may be repeated."""
    for aside in asides:
        folder = aside["dir"]
        if not os.path.isdir(folder):
            continue
        kept = {item["name"]: item["inode"] for item in aside["files"]}
        for name in list_module(folder, planned):
            path = os.path.join(folder, name)
            if name not in kept or not _is_original(path, kept[name], planned):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        for name in kept:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                os.rename(beside(path, ORIG), path)
        if aside["before"] is None:
            dirs.remove_if_empty(folder)
        else:
            sync_dir(folder)


def _is_original(path: str, inode: int, planned: PlannedFile) -> bool:
    """Whether a recorded file is still or again in its place.

    One that was written anew counts where its header names the original source: set aside was
    then never reached, or the server is back already.
    """
    if os.path.lexists(beside(path, ORIG)):
        return False
    if os.stat(path).st_ino == inode:
        return True
    with open(path, "rb") as file:
        header = file.read(16)
    source = planned.stat.get("mtime_ns", 0) // 10**9 & 0xFFFFFFFF
    return header[4:] == struct.pack("<III", 0, source, planned.stat.get("size", 0) & 0xFFFFFFFF)
