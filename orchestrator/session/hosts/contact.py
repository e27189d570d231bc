"""Talks to hosts outside of a run: who answers, what is left there, and ending it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.agent.ship import open_agent
from orchestrator.diagnostics import fold_hosts, make_visible
from orchestrator.errors import FleetError, HostError, OrchestratorError
from orchestrator.model.inventory import Host, Inventory
from orchestrator.model.outcome import Outcome
from orchestrator.session.hosts.seeking import list_places, list_sessions, look_beside
from orchestrator.transport.base import Transport

_CONNECT_S = 20.0
_THREADS = 32


@dataclass(frozen=True, slots=True)
class Contact:
    """A host's answer: its agent, or why there is none; `notes` say where nothing was sought."""

    host: Host
    agent: AgentClient | None
    error: HostError | None
    sessions: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()


def open_contacts(
    transport: Transport, hosts: Sequence[Host], inventory: Inventory | None = None
) -> list[Contact]:
    """Connect to every host at once and ask for its unfinished sessions; order is kept.

    With an inventory also beside the installs of each host, for sessions whose state directory was
    lost; one that cannot be looked beside hides nothing else. The caller closes with
    `close_contacts`. Host errors are values.
    """

    def reach(host: Host) -> Contact:
        agent = None
        try:
            agent = open_agent(transport, host, timeout_s=_CONNECT_S)
            sessions = list_sessions(agent, [])
            notes: list[str] = []
            places = list_places(host, inventory)
            if places:
                sessions, notes = look_beside(agent, places, sessions)
        except HostError as error:
            if agent is not None:
                agent.close()
            return Contact(host, None, error)
        return Contact(host, agent, None, sessions, tuple(notes))

    if not hosts:
        return []
    with ThreadPoolExecutor(min(_THREADS, len(hosts)), "sgldbg-contact") as pool:
        return list(pool.map(reach, hosts))


def is_abroad(left: Mapping[str, Any]) -> bool:
    """Whether another machine began this session, and the lock beside an install tells of it."""
    return bool(left.get("elsewhere") and left.get("lock"))


def is_of_earlier_machine(contact: Contact, left: Mapping[str, Any]) -> bool:
    """Whether another machine began it under this host's name, as a container that was there."""
    return is_abroad(left) and left["host"] == contact.host.name


def find_new_machines(contacts: Sequence[Contact]) -> set[str]:
    """Hosts that answered as another machine than the one that left a session in their install."""
    return {c.host.name for c in contacts for s in c.sessions if is_of_earlier_machine(c, s)}


# What a host sees of a server, where `Outcome` has another word for it.
_SERVERS = {
    "restored, and gone since": "not back",
    "debug life, and gone since": "stopped",
}


def tell_files(left: Mapping[str, Any]) -> str:
    """The word of `Outcome` for the files of a session that a host tells of: the worst of them."""
    states = [file["state"] for file in left["files"]]
    if not states and left["state"].startswith("unknown"):
        return "unknown"
    if any(state.startswith("unknown") for state in states):
        return "unknown"
    if any(state == "drift" or state.startswith("changed") for state in states):
        return "drifted"
    if "patched" in states:
        return "patched"
    if left["state"].startswith("reverted"):
        return "reverted"
    return "staged" if states else "untouched"


def tell_server(left: Mapping[str, Any]) -> str:
    """The word of `Outcome` for its server."""
    return _SERVERS.get(left["server"], str(left["server"]))


def join_errors(errors: Sequence[HostError], what: str, state: str) -> OrchestratorError | None:
    """One error of all of these, `what` with their hosts, which are in this state; or `None`."""
    if not errors:
        return None
    hosts = list(dict.fromkeys(e.host for e in errors))
    found = errors[0] if len(errors) == 1 else FleetError(f"{what} {fold_hosts(hosts)}", errors)
    found.outcomes = tuple(Outcome(h, "contact", False, state, state) for h in hosts)
    return found


def unreached(contacts: Sequence[Contact], state: str) -> OrchestratorError | None:
    """The error of all hosts that did not answer, which are then in this state; or `None`."""
    errors = [c.error for c in contacts if c.error is not None]
    return join_errors(errors, "no contact with", state)


def list_notes(contacts: Sequence[Contact]) -> list[str]:
    """What could not be looked for on hosts that did answer, each with its hosts."""
    by_text: dict[str, list[str]] = {}
    for contact in contacts:
        for note in contact.notes:
            by_text.setdefault(note, []).append(contact.host.name)
    return [f"{fold_hosts(names)}: {make_visible(note)}" for note, names in by_text.items()]


def close_contacts(contacts: Sequence[Contact]) -> None:
    """Close every agent's channel."""
    for contact in contacts:
        if contact.agent is not None:
            contact.agent.close()


def show_time(seconds: float | None) -> str:
    """A wall-clock time of a host as everybody can read it."""
    if seconds is None:
        return "an unknown time"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
