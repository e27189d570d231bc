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
from orchestrator.model.inventory import Host, Install, Inventory
from orchestrator.model.outcome import Outcome
from orchestrator.transport.base import Transport

_CONNECT_S = 20.0
# An interpreter says in a tenth of a second where a package lies; one on a mount that hangs never.
_LOCATE_S = 10.0
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
            sessions = _list_sessions(agent, [])
            notes: list[str] = []
            installs = _list_installs(host, inventory)
            if installs:
                sessions, notes = _look_beside(agent, installs, sessions)
        except HostError as error:
            if agent is not None:
                agent.close()
            return Contact(host, None, error)
        return Contact(host, agent, None, sessions, tuple(notes))

    if not hosts:
        return []
    with ThreadPoolExecutor(min(_THREADS, len(hosts)), "sgldbg-contact") as pool:
        return list(pool.map(reach, hosts))


def _list_sessions(agent: AgentClient, packages: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    return tuple(agent.call("status", {"packages": packages}).value["sessions"])


def _list_installs(host: Host, inventory: Inventory | None) -> list[Install]:
    """The installs of a host, each once."""
    if inventory is None:
        return []
    names = dict.fromkeys(s.install for s in inventory.servers.values() if host.name in s.hosts)
    return [inventory.installs[n] for n in names]


def _look_beside(
    agent: AgentClient, installs: Sequence[Install], known: tuple[Mapping[str, Any], ...]
) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
    """The sessions of a host with those that only an install tells of, and what hindered the look.

    `known` are those that the host knows without it. All installs are asked for at once.
    """
    with ThreadPoolExecutor(min(_THREADS, len(installs)), "sgldbg-locate") as pool:
        found = list(pool.map(lambda install: _find_packages(agent, install), installs))
    notes = [
        f"beside install `{install.name}` no lost session was sought: {one.message}"
        for install, one in zip(installs, found, strict=True)
        if isinstance(one, HostError)
    ]
    named = [path for one in found if not isinstance(one, HostError) for path in one]
    packages = list(dict.fromkeys(named))
    if not packages:
        return known, notes
    try:
        return _list_sessions(agent, packages), notes
    except HostError as error:
        if error.code == "lost":
            raise
        return known, [*notes, f"no lost session was sought: {error.message}"]


def _find_packages(agent: AgentClient, install: Install) -> list[str] | HostError:
    """Where an install stands, or why its interpreter did not say so in time.

    Where the inventory names none, those of its servers that run say it, a debug life among them.
    One that is not there is no matter here: `sgldbg hosts` tells of it.
    """
    try:
        pids: list[int | None] = [None]
        if install.python is None:
            asked = {"package": install.package}
            running = agent.call("find-servers", asked, timeout_s=_LOCATE_S).value
            pids = [one["pid"] for one in running]
        return [path for pid in pids for path in _locate(agent, install, pid)]
    except HostError as error:
        if error.code == "lost":
            raise
        return error


def _locate(agent: AgentClient, install: Install, pid: int | None) -> list[str]:
    args = {"python": install.python, "package": install.package, "pid": pid}
    try:
        return [str(agent.call("locate", args, timeout_s=_LOCATE_S).value["package_dir"])]
    except HostError as error:
        if error.code in ("no-interpreter", "not-installed", "gone"):
            return []
        raise


def is_abroad(left: Mapping[str, Any]) -> bool:
    """Whether another machine began this session, and the lock beside an install tells of it."""
    return bool(left.get("elsewhere") and left.get("lock"))


def is_of_earlier_machine(contact: Contact, left: Mapping[str, Any]) -> bool:
    """Whether another machine began it under this host's name, as a container that was there."""
    return is_abroad(left) and left["host"] == contact.host.name


def find_new_machines(contacts: Sequence[Contact]) -> set[str]:
    """Hosts that answered as another machine than the one that left a session in their install."""
    return {c.host.name for c in contacts for s in c.sessions if is_of_earlier_machine(c, s)}


def tell_files(left: Mapping[str, Any]) -> str:
    """The word of `Outcome` for the files of a session that a host tells of: the worst of them."""
    states = [file["state"] for file in left["files"]]
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
    return "not back" if left["server"] == "restored, and gone since" else str(left["server"])


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
