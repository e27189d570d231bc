"""What an install says its files should be: a wheel's RECORD, or the commit of a checkout.

Both only describe a file; what a session compares and restores are the bytes that it saw.
"""

from __future__ import annotations

import base64
import csv
import difflib
import hashlib
import os
import subprocess
from typing import Dict, List, Optional, Tuple

from ..proc import procfs

_GIT_TIMEOUT_S = 20.0


def read_record(dist_info: str) -> Dict[str, str]:
    """File to `sha256=...` of a RECORD; empty where there is none. Hashes may be empty."""
    data = procfs.read_bytes(os.path.join(dist_info, "RECORD"))
    if data is None:
        return {}
    rows = csv.reader(data.decode("utf-8", "surrogateescape").splitlines())
    return {row[0]: row[1] for row in rows if len(row) >= 2}


def matches_record(entry: str, data: bytes) -> Optional[bool]:
    """Whether bytes have the checksum of a RECORD entry; `None` for an unknown algorithm."""
    algorithm, _, expected = entry.partition("=")
    if algorithm not in ("sha256", "sha384", "sha512"):
        return None
    digest = hashlib.new(algorithm, data).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == expected.rstrip("=")


def compare_with_checkout(path: str, data: bytes) -> Tuple[Optional[bool], str]:
    """Whether a file equals its checkout's HEAD; nothing of the checkout is written or run.

    `git status` would rewrite the index and run what the repository's configuration names
    (fsmonitor, filters), so that only objects are read here.
    """
    top = _find_checkout(os.path.dirname(path))
    if top is None:
        return None, "neither a RECORD nor a checkout tells"
    relative = os.path.relpath(path, top)
    listed = _git(top, "ls-tree", "-z", "HEAD", "--", relative)
    if listed is None:
        return None, "in a checkout that git cannot read"
    if not listed:
        return None, "not part of the checkout's HEAD"
    wanted = listed.split(b"\t")[0].split()[2].decode()
    head = (_git(top, "rev-parse", "--short", "HEAD") or b"?").decode().strip()
    if name_blob(data, len(wanted)) == wanted:
        return True, "equals HEAD %s" % head
    old = _git(top, "cat-file", "blob", wanted)
    if old is None:
        return False, "has local changes against HEAD %s" % head
    return False, "has local changes against HEAD %s: %s" % (head, _count_changes(old, data))


def name_blob(data: bytes, length: int) -> str:
    """The name that git gives these bytes, in a repository of SHA-1 or of SHA-256."""
    digest = hashlib.sha1() if length == 40 else hashlib.sha256()
    digest.update(b"blob %d\0" % len(data) + data)
    return digest.hexdigest()


def list_checkout(root: str, folder: str) -> Tuple[Dict[str, str], Optional[str]]:
    """The Python files of `folder` in its checkout's HEAD: path below `root` to the blob's name.

    The second value is `HEAD 1a2b3c4`, or `None` where no checkout or no git tells.
    """
    real = os.path.realpath(folder)
    top = _find_checkout(real)
    listed = None
    if top is not None:
        listed = _git(top, "ls-tree", "-r", "-z", "HEAD", "--", os.path.relpath(real, top))
    if top is None or not listed:
        return {}, None
    found: Dict[str, str] = {}
    for line in listed.split(b"\0"):
        head, _, name = line.partition(b"\t")
        if name.endswith(b".py") and head.split()[1] == b"blob":
            inside = os.path.relpath(os.path.join(top, procfs.to_text(name)), real)
            path = os.path.relpath(os.path.join(folder, inside), root)
            found[path] = head.split()[2].decode()
    commit = (_git(top, "rev-parse", "--short", "HEAD") or b"?").decode().strip()
    return found, "HEAD %s" % commit


def _count_changes(old: bytes, new: bytes) -> str:
    before = old.decode("latin-1").splitlines()
    after = new.decode("latin-1").splitlines()
    lines = list(difflib.unified_diff(before, after, n=0))[2:]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return "%d lines added, %d removed" % (added, removed)


def _find_checkout(folder: str) -> Optional[str]:
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _git(top: str, *words: str) -> Optional[bytes]:
    """What git prints, or `None` where it is not there or refuses."""
    # The owner of a checkout is often not the user that runs the agent.
    command: List[str] = ["git", "-c", "safe.directory=" + top, "-C", top, *words]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ.update(GIT_OPTIONAL_LOCKS="0", GIT_NO_LAZY_FETCH="1", GIT_TERMINAL_PROMPT="0")
    environ.update(GIT_LITERAL_PATHSPECS="1", LC_ALL="C")
    try:
        done = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
