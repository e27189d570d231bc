"""A copy of each original in the session's directory, for where the one beside its file is removed.

`git clean` takes every untracked name out of a checkout, those of ours with them; what stood in a
patched file may be somebody's uncommitted work.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from typing import List, Optional

from ..held.facts import Facts, PlannedFile
from ..held.journal import sync_dir
from ..held.state import SessionState
from ..space import naming
from . import files

_FOLDER = "originals"


def keep(session: SessionState, one: PlannedFile) -> None:
    """Copy the kept original of a file, durably; the bytes alone, since the plan has the rest."""
    folder, target = session.path(_FOLDER), _path(session, one)
    os.makedirs(folder, 0o700, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with naming(target), open(one.orig, "rb") as source:
        fd = os.open(target, flags, 0o600)
        with open(fd, "wb") as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(fd)
    sync_dir(folder)


def find(session: SessionState, one: PlannedFile) -> List[str]:
    """Where the copy of this original is, if there is a whole one."""
    return [_path(session, one)] if _read(session, one) is not None else []


def give_back(session: SessionState, one: PlannedFile) -> bool:
    """Make the kept original of a file anew where nothing stands in its place; whether it did.

    Its extended attributes are those of what stands there: our planned bytes were given them.
    """
    if one.before_sha256 is None or os.path.lexists(one.orig):
        return False
    data = _read(session, one)
    if data is None:
        return False
    files.write_original(one, data)
    return True


def forget(session: SessionState) -> None:
    """Remove the copies: every original is back, or somebody has decided otherwise."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(session.path(_FOLDER))


def _read(session: SessionState, one: PlannedFile) -> Optional[bytes]:
    try:
        with open(_path(session, one), "rb") as file:
            data = file.read()
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == one.before_sha256 else None


def _path(session: SessionState, one: PlannedFile) -> str:
    return find_path(session.directory, session.facts, one)


def find_path(directory: str, facts: Facts, one: PlannedFile) -> str:
    """Where the copy of an original lies in the directory of a session, if it was made."""
    return os.path.join(directory, _FOLDER, str(facts.files.index(one)))
