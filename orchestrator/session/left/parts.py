"""Which sessions a command means, and through which host each of their parts is ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.session.hosts.contact import (
    Contact,
    find_new_machines,
    is_abroad,
)
from orchestrator.session.hosts.held import is_not_from_here

Left = Mapping[str, Any]
Wanted = Callable[[Left], bool]


def is_of(session_name: str) -> Wanted:
    """Chooses the sessions that were made from the session file of this name."""
    # An id is `<date>-<time>-<name>-<8 hex digits>`, and names may hold dashes as well.
    return lambda left: str(left["session"]).split("-", 2)[-1].rpartition("-")[0] == session_name


def all_sessions(left: Left) -> bool:
    """Chooses every session."""
    return True


@dataclass(frozen=True, slots=True)
class Part:
    """One session on one host."""

    contact: Contact
    left: Left

    @property
    def name(self) -> str:
        return self.contact.host.name

    @property
    def mine(self) -> dict[str, str]:
        """How the agent names it."""
        return {"session": self.left["session"], "host": self.left["host"]}


def group_sessions(contacts: Sequence[Contact], wanted: Wanted) -> dict[str, list[Part]]:
    """The wanted sessions by id, each with its hosts in order.

    Two hosts of an inventory that share a state directory both tell of both; each session is then
    ended through the host that it is of, and never through another machine. What a host has taken
    over from another one is a session of its own, and comes after those that it may wait for.
    """
    names = {c.host.name for c in contacts}
    sessions: dict[str, list[Part]] = {}
    taken: dict[str, list[Part]] = {}
    seen: set[tuple[str, str, bool]] = set()
    for contact in contacts:
        for left in contact.sessions:
            is_taken = bool(left.get("taken_from"))
            key = (left["session"], left["host"], is_taken)
            other = left["host"] in names and left["host"] != contact.host.name and not is_taken
            other = other or bool(left.get("elsewhere")) or is_not_from_here(left)
            if wanted(left) and not other and key not in seen:
                seen.add(key)
                kind = taken if is_taken else sessions
                kind.setdefault(left["session"], []).append(Part(contact, left))
    return sessions | {f"{name}, taken over": parts for name, parts in taken.items()}


def find_held(contacts: Sequence[Contact], wanted: Wanted) -> list[Part]:
    """The wanted sessions that hold an install of a host, and that nobody can end through it."""
    return [
        Part(contact, left)
        for contact in contacts
        for left in contact.sessions
        if is_not_from_here(left) and wanted(left)
    ]


def find_gone(contacts: Sequence[Contact], gone: Sequence[str], wanted: Wanted) -> list[Part]:
    """What hosts that are gone left in installs that others see, each through one of these.

    Never through another host where that one answers, also where its machine is a new one.
    """
    reached = find_reached(contacts)
    found: dict[tuple[str, str], Part] = {}
    for contact in contacts:
        for left in contact.sessions:
            host = left["host"]
            through = host == contact.host.name or host not in reached
            if is_abroad(left) and host in gone and through and wanted(left):
                found.setdefault((left["session"], host), Part(contact, left))
    return list(found.values())


def find_answering(contacts: Sequence[Contact], gone: Sequence[str]) -> list[str]:
    """Those of the hosts that are said to be gone that answer, on the machine that they were."""
    return [name for name in gone if name in find_reached(contacts) - find_new_machines(contacts)]


def find_reached(contacts: Sequence[Contact]) -> set[str]:
    """The hosts that answered."""
    return {c.host.name for c in contacts if c.agent is not None}


def list_owners(contacts: Sequence[Contact]) -> set[str]:
    """Hosts of whose part in a shared install another host can tell."""
    every = [left for contact in contacts for left in contact.sessions]
    owners = {str(left["shared_with"]) for left in every if left.get("shared_with")}
    return owners | {str(left["host"]) for left in every if is_abroad(left)}
