"""Sessions of which only the lock beside an install tells: where a host's installs stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host, Install, Inventory, LaunchCommand
from orchestrator.servers.adopt import Sought, choose
from orchestrator.servers.life import for_host

# An interpreter says in a tenth of a second where a package lies; one on a mount that hangs never.
_LOCATE_S = 10.0
_THREADS = 32

Ask = Mapping[str, Any]
Sessions = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Place:
    """An install of a host, its servers there, and in which surroundings commands import it."""

    install: Install
    servers: tuple[Sought, ...]
    commands: tuple[Ask, ...]


def list_places(host: Host, inventory: Inventory | None) -> list[Place]:
    """The installs of a host, each once."""
    if inventory is None:
        return []
    servers: dict[str, list[Sought]] = {}
    commands: dict[str, list[Ask]] = {}
    for server in inventory.servers.values():
        if host.name not in server.hosts:
            continue
        install = inventory.installs[server.install]
        rank, nodes = server.hosts.index(host.name), len(server.hosts)
        servers.setdefault(install.name, []).append(Sought(server, install, host, rank, nodes))
        asked = commands.setdefault(install.name, [])
        if isinstance(server.launch, LaunchCommand):
            life = for_host(server.launch, host, rank, nodes)
            python = install.python or life.argv[0]
            around = {"env": dict(life.env_set), "cwd": life.cwd, "program": life.argv[0]}
            asked.append({"python": python, "pid": None, **around})
    return [
        Place(inventory.installs[name], tuple(there), tuple(commands[name]))
        for name, there in servers.items()
    ]


def list_sessions(agent: AgentClient, packages: Sequence[str]) -> Sessions:
    """The unfinished sessions that a host knows, and those beside these packages."""
    return tuple(agent.call("status", {"packages": packages}).value["sessions"])


def look_beside(
    agent: AgentClient, places: Sequence[Place], known: Sessions
) -> tuple[Sessions, list[str]]:
    """The sessions of a host with those that only an install tells of, and what hindered the look.

    `known` are those that the host knows without it. All installs are asked for at once.
    """
    with ThreadPoolExecutor(min(_THREADS, len(places)), "sgldbg-locate") as pool:
        found = list(pool.map(lambda place: _find_packages(agent, place), places))
    notes = [
        f"beside install `{place.install.name}` no lost session was sought: {failure.message}"
        for place, (_, failure) in zip(places, found, strict=True)
        if failure is not None
    ]
    packages = list(dict.fromkeys(path for paths, _ in found for path in paths))
    if not packages:
        return known, notes
    try:
        return list_sessions(agent, packages), notes
    except HostError as error:
        if error.code == "lost":
            raise
        return known, [*notes, f"no lost session was sought: {error.message}"]


def _find_packages(agent: AgentClient, place: Place) -> tuple[list[str], HostError | None]:
    """Where an install stands, and why some interpreter did not say so in time.

    Where the inventory names no interpreter, or one that does not find the package by itself, its
    servers that run say it, a debug life among them; and while none does, what its commands would
    run in their own environment and directory. One that is not there is no matter here: `sgldbg
    hosts` tells of it.
    """
    found: list[str] = []
    failure = None
    try:
        if place.install.python is not None:
            asked = {"python": place.install.python, "pid": None}
            found += _locate(agent, place.install.package, asked)
        running = [] if found else _find_running(agent, place)
    except HostError as error:
        if error.code == "lost":
            raise
        running, failure = [], error
    asks = [{"python": None, "pid": one["pid"]} for one in running if one["readable"]]
    for one in [*asks, *place.commands]:
        try:
            found += _locate(agent, place.install.package, one)
        except HostError as error:
            if error.code == "lost":
                raise
            failure = error
    closed = [one for one in running if not one["readable"]]
    if closed and not found and failure is None:
        pid, user = closed[0]["pid"], closed[0]["user"]
        text = f"its server (process {pid}) belongs to {user}, whose processes we may not read"
        failure = HostError(text, host=agent.host, code="not-restorable")
    return found, failure


def _find_running(agent: AgentClient, place: Place) -> list[Mapping[str, Any]]:
    """The servers that run: all where nothing is known of the install, else the ones meant."""
    asked = {"package": place.install.package}
    running = agent.call("find-servers", asked, timeout_s=_LOCATE_S).value
    if place.install.python is not None:
        running = [one for sought in place.servers for one in _choose(running, sought)]
    return list(running)


def _choose(running: Sequence[Mapping[str, Any]], sought: Sought) -> list[Mapping[str, Any]]:
    try:
        return [choose(running, sought)]
    except HostError:  # none of them, or nobody knows which
        return []


def _locate(agent: AgentClient, package: str, asked: Ask) -> list[str]:
    args = {**asked, "package": package}
    try:
        value = agent.call("locate", args, timeout_s=_LOCATE_S).value
        copies = [value, value.get("other") or value]
        return list(dict.fromkeys(str(one["package_dir"]) for one in copies))
    except HostError as error:
        if error.code in ("no-interpreter", "not-installed", "gone"):
            return []
        raise
