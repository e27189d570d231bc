"""What somebody else put in a file's place is kept before force takes it away."""

from __future__ import annotations

import os
import shutil
import stat as modes
from typing import List

from ..held.facts import PlannedFile
from ..held.state import SessionState
from ..refusal import Refusal
from .files import Look


def save(session: SessionState, one: PlannedFile, seen: Look) -> List[str]:
    """Keep in the state directory what stands in the place of a file; where it is then.

    A file is copied, so that its place is never empty; all else is moved. Refused is what is
    mounted there, and a device or pipe that would have to go to another file system.
    """
    if seen.kind == "missing" or seen.stat is None:
        return []
    target = _find_name(session, one)
    mode = seen.stat.st_mode
    if modes.S_ISREG(mode):
        shutil.copy2(one.path, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())
    elif os.path.ismount(one.path):
        raise Refusal("unsupported", "something is mounted at `%s`" % one.path)
    elif modes.S_ISDIR(mode) or modes.S_ISLNK(mode):
        shutil.move(one.path, target)
    else:
        os.rename(one.path, target)
    return [target]


def _find_name(session: SessionState, one: PlannedFile) -> str:
    folder = os.path.join(session.state_dir, "kept", session.name, session.host)
    os.makedirs(folder, 0o700, exist_ok=True)
    name = "%d-%s" % (len(os.listdir(folder)) + 1, os.path.basename(one.path))
    return os.path.join(folder, name)
