"""Workers that an earlier life of a server left: told, and in the way where they hold GPUs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, Server
from orchestrator.servers.base import Found
from orchestrator.servers.survey import tell_end, tell_orphans
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.locating import LOOK_S

_ENDING_S = 3.0
_LOOK_AGAIN_S = 0.5


def note_orphans(member: Member, server: Server, install: Install) -> Found:
    """The member's server with a note on each of them.

    Raises `HostError` `orphans` where it does not run and they hold memory of GPUs: its start would
    end for want of that, and look like the patch's fault.
    """
    assert member.found is not None
    found, rows = member.found, _find(member, install)
    if not rows:
        return found
    if found.description is None and any(row["gpus"] for row in rows):
        raise HostError(
            f"workers that an earlier server of `{install.package}` left hold GPUs that server"
            f" `{server.name}` needs",
            host=member.name,
            code="orphans",
            notes=tell_orphans(rows),
            hints=[tell_end(rows)],
        )
    notes = (*found.original.notes, *tell_orphans(rows), tell_end(rows))
    return replace(found, original=replace(found.original, notes=notes))


def name_orphans(error: HostError, member: Member, install: Install) -> None:
    """Say in the error of a server that was not found what is left of it."""
    rows = _find(member, install)
    if rows:
        error.notes = (*error.notes, *tell_orphans(rows))
        error.hints = (*error.hints, tell_end(rows))


def _find(member: Member, install: Install) -> Sequence[Mapping[str, Any]]:
    """Those that stay: workers whose main process has just ended end by themselves, soon."""
    deadline_s = time.monotonic() + _ENDING_S
    rows = _look(member, install)
    while rows and time.monotonic() < deadline_s:
        time.sleep(_LOOK_AGAIN_S)
        still = {(row["pid"], row["start_time"]) for row in _look(member, install)}
        rows = [row for row in rows if (row["pid"], row["start_time"]) in still]
    return rows


def _look(member: Member, install: Install) -> list[Mapping[str, Any]]:
    args = {"package": install.package}
    rows: list[Mapping[str, Any]] = member.channel.call("orphans", args, timeout_s=LOOK_S).value
    return rows
