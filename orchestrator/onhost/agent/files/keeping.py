"""What force takes away, or gives up, is kept: somebody else's version, an original's copy."""

from __future__ import annotations

import itertools
import os
import shutil
import stat as modes
from typing import Iterator, List

from ..held.facts import PlannedFile
from ..held.state import SessionState
from ..refusal import Refusal
from ..space import naming
from . import spare
from .files import Look


def save(session: SessionState, one: PlannedFile, seen: Look) -> List[str]:
    """Keep in the state directory what stands in the place of a file; where it is then.

    A file is copied, so that its place is never empty; all else is moved. Refused is what is
    mounted there, and a device or pipe that would have to go to another file system.
    """
    if seen.kind == "missing" or seen.stat is None:
        return []
    folder = _make_folder(session)
    mode = seen.stat.st_mode
    if modes.S_ISREG(mode):
        return [_copy(one.path, folder)]
    target = next(_free_names(one.path, folder))
    if os.path.ismount(one.path):
        raise Refusal("unsupported", "something is mounted at `%s`" % one.path)
    if modes.S_ISDIR(mode) or modes.S_ISLNK(mode):
        shutil.move(one.path, target)
    else:
        os.rename(one.path, target)
    return [target]


def save_spare(session: SessionState, one: PlannedFile) -> List[str]:
    """Keep the copy of an original that is not put back: nobody else may have it any more."""
    copies = spare.find(session, one)
    return [_copy(path, _make_folder(session), one.path) for path in copies]


def _make_folder(session: SessionState) -> str:
    folder = os.path.join(session.state_dir, "kept", session.name, session.host)
    os.makedirs(folder, 0o700, exist_ok=True)
    return folder


def _copy(path: str, folder: str, named: str = "") -> str:
    for target in _free_names(named or path, folder):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(target, flags, 0o600)
        except FileExistsError:
            continue
        with open(path, "rb") as source, open(fd, "wb") as kept, naming(target):
            shutil.copyfileobj(source, kept)
            kept.flush()
            shutil.copystat(path, target)
            os.fsync(fd)
        return target
    raise AssertionError("there is always one more name")


def _free_names(path: str, folder: str) -> Iterator[str]:
    """Names that nothing has: their owner may have taken some away, so a count gives none."""
    for number in itertools.count(len(os.listdir(folder)) + 1):
        target = os.path.join(folder, "%d-%s" % (number, os.path.basename(path)))
        if not os.path.lexists(target):
            yield target
