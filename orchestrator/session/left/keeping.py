"""Keeps what `apply` left, until somebody reverts it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from orchestrator.errors import HostError
from orchestrator.model.outcome import Outcome
from orchestrator.session.hosts.contact import Contact, tell_files, tell_server
from orchestrator.session.left.parts import Part, Wanted, group_sessions
from orchestrator.session.left.telling import busy, unreached

_THREADS = 32
_ATTACH_S = 20.0


def keep_sessions(contacts: Sequence[Contact], wanted: Wanted) -> list[Outcome]:
    """End the leases of the wanted sessions; the files stay patched until a later revert.

    Only what `apply` left behind whole: a host refuses what is half-way, and one that is at work
    for a controller is left to that one.
    """

    def keep(part: Part) -> Outcome:
        assert part.contact.agent is not None
        left = part.left
        if left["controller"] == "alive":
            return replace(busy(part), stage="keep")
        state, server = tell_files(left), tell_server(left)
        if (state, server) != ("patched", "debug life"):
            said = f"only a whole debug life can be kept: {left['state']}, server {server}"
            return Outcome(part.name, "keep", False, state, server, said)
        try:
            part.contact.agent.call("attach", part.mine | {"keep": True}, timeout_s=_ATTACH_S)
            part.contact.agent.call("keep")
        except HostError as error:
            return Outcome(part.name, "keep", False, state, server, error.message)
        return Outcome(part.name, "keep", True, state, server, str(left["session"]))

    silent = [unreached(c, "keep") for c in contacts if c.agent is None]
    parts = [part for session in group_sessions(contacts, wanted).values() for part in session]
    with ThreadPoolExecutor(_THREADS, "sgldbg-keep") as pool:
        return silent + list(pool.map(keep, parts))
