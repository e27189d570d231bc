"""A module that the session created stays as long as a file that cannot be put back imports it.

Without it that file could not be imported at all, and the original server would die of that.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, Dict, NamedTuple, Optional

from ..held.facts import PlannedFile
from ..held.state import SessionState
from . import files, probedir


class Importer(NamedTuple):
    """A file that still names the module. `planned`: it holds our bytes, not somebody's edit."""

    path: str
    planned: bool


def find_importer(session: SessionState, one: PlannedFile) -> Optional[Importer]:
    """The first file of the session that names this created module and is not the original."""
    if one.before_sha256 is not None or files.look(one.path).kind == "missing":
        return None
    name = os.path.splitext(os.path.basename(one.path))[0].encode("utf-8")
    word = re.compile(rb"\b" + re.escape(name) + rb"\b")
    for other in session.facts.files:
        if other is one or other.file not in session.facts.swapping:
            continue
        with contextlib.suppress(OSError):
            seen = files.look(other.path)
            if seen.kind != "file" or seen.sha256 == other.before_sha256:
                continue
            with open(other.path, "rb") as file:
                if word.search(file.read()):
                    return Importer(other.path, seen.sha256 == other.after_sha256)
    return None


def leave_in(session: SessionState, importer: Importer) -> Dict[str, Any]:
    """Leave the module where it is, but with nothing to do; what a report says of it."""
    table = os.path.join((session.facts.begun or {})["probe_dir"], probedir.TABLE)
    with contextlib.suppress(OSError):
        os.unlink(table)
    why = "`%s` still imports it; it does nothing, and goes with that file" % importer.path
    return {"state": "failed" if importer.planned else "drift", "why": why}
