"""What hosts hold: their installs and whether these are pristine, their servers, what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from orchestrator.agent.client import AgentClient
from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, Inventory, Server
from orchestrator.servers.base import Found, Life, shown
from orchestrator.servers.survey import read_sight
from orchestrator.session.hosts.contact import Contact
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps.locating import LOOK_S, find_life, locate

_THREADS = 32

Row = dict[str, Any]
# What an install's check depends on: root, package and the directory of its record.
_Checked = tuple[str, str, str | None]


def look_at_all(contacts: Sequence[Contact], book: Inventory) -> list[tuple[Row, list[HostError]]]:
    """What every host holds, and an error for everything that is wrong there; order is kept.

    A row has `host`, `installs` and `servers`; also `as` (user and host name), `unfinished`
    sessions, `not_found` and `orphans` of a host that answered; `error` and `code` of one that did
    not, or was lost meanwhile. It holds no secret. Nothing is changed anywhere.
    """
    with ThreadPoolExecutor(max(1, min(_THREADS, len(contacts))), "sgldbg-look") as pool:
        return list(pool.map(lambda contact: _look(contact, book), contacts))


def _look(contact: Contact, book: Inventory) -> tuple[Row, list[HostError]]:
    row: Row = {"host": contact.host.name, "installs": [], "servers": []}
    failure = contact.error
    if contact.agent is not None:
        look = _Look(contact, contact.agent, row)
        try:
            look.at_inventory(book)
            look.at_servers()
            look.at_sessions()
            return row, look.errors
        except HostError as error:  # it was lost meanwhile
            failure = error
    assert failure is not None
    return row | {"error": failure.message, "code": failure.code}, [failure]


class _Look:
    """One host's row as it is filled in, and what is wrong there."""

    def __init__(self, contact: Contact, agent: AgentClient, row: Row) -> None:
        self._host = contact.host
        self._agent = agent
        self._names: dict[int, str] = {}
        self._taken: set[int] = set()
        self._obstacles: dict[int, HostError] = {}
        self._checked: dict[_Checked, Any] = {}
        self.errors: list[HostError] = []
        self.row = row
        row |= {
            "as": f"{agent.hello['user']}@{agent.hello['hostname']}",
            "unfinished": [s["session"] for s in contact.sessions],
            "not_found": [],
            "orphans": [],
        }

    def at_inventory(self, book: Inventory) -> None:
        """The servers that the inventory has on this host, and where their installs stand."""
        for server in [s for s in book.servers.values() if self._host.name in s.hosts]:
            install = book.installs[server.install]
            member = self._find(server, install)
            at = self._look_at_install(member, server, install)
            if at not in self.row["installs"]:
                self.row["installs"].append(at)

    def at_servers(self) -> None:
        """Every server that runs from one of these packages, and what servers left."""
        for package in dict.fromkeys(at["package"] for at in self.row["installs"]):
            for found in self._call("survey", {"package": package}):
                self.row["servers"].append(self._describe(found, package))
            self.row["orphans"] += self._call("orphans", {"package": package})

    def at_sessions(self) -> None:
        """Whatever is unfinished, also what only a lock beside one of these installs tells of."""
        found = [*self.row["installs"], *(s["runs"] or {} for s in self.row["servers"])]
        packages = dict.fromkeys(at["package_dir"] for at in found if "package_dir" in at)
        sessions = self._call("status", {"packages": list(packages)})["sessions"]
        self.row["unfinished"] = [s["session"] or "of an unknown name" for s in sessions]

    def _find(self, server: Server, install: Install) -> Member:
        """This host's part of the server; one that is not there is noted, and is none the less."""
        member = Member(self._host, server.hosts.index(self._host.name), agent=self._agent)
        try:
            member.found = find_life(member, server, install, len(server.hosts))
        except HostError as error:
            _pass_on_loss(error)
            # One that is there, but that no session could take, is looked at all the same.
            seen: Any = error.data.get("found")
            member.found = Found(self._host.name, seen, Life(()))
            if seen is not None:
                self._names[seen["pid"]] = server.name
            if seen is not None and error.code == "port-taken":
                # It runs and is as the inventory says; what is in its way is to be known of it.
                self._taken.add(seen["pid"])
                self._obstacles[seen["pid"]] = error
                return member
            self.row["not_found"].append({"server": server.name, "error": error.message})
            # A server that does not run is a fact; one that no session could take is wrong. A
            # session tells several parts of one rank apart by what it sees on rank 0's host.
            open_question = member.rank > 0 and error.code == "server-ambiguous"
            if error.code != "server-not-found" and not open_question:
                self.errors.append(error)
            return member
        if member.found.description is not None:
            self._names[member.found.description["pid"]] = server.name
            self._taken.add(member.found.description["pid"])
        return member

    def _look_at_install(self, member: Member, server: Server, install: Install) -> Row:
        """Where the install stands for the server that runs there, or would be started there."""
        at = {"name": install.name, "package": install.package}
        try:
            at |= locate(member, server, install)
            return at | {"pristine": self._check(at)}
        except HostError as error:
            _pass_on_loss(error)
            # With no `python` it is the server's own that counts, and that was not there to be
            # asked, which is told already.
            missed = [missing["server"] for missing in self.row["not_found"]]
            if install.python is not None or server.name not in missed:
                self.errors.append(error)
            return at | {"error": error.message}

    def _check(self, at: Mapping[str, Any]) -> Any:
        """Whether a package is as its record says; every file is read, so only once."""
        key = (at["root"], at["package"], at["dist_info"])
        if key not in self._checked:
            asked = dict(zip(("root", "package", "dist_info"), key, strict=True))
            self._checked[key] = self._call("pristine", asked)
        return self._checked[key]

    def _describe(self, found: Mapping[str, Any], package: str) -> Row:
        """One running server; `runs` is its install where the inventory names none like it.

        `obstacle` says why no session could take it though nothing is wrong with it.
        """
        obstacle = self._obstacles.get(found["pid"])
        server = {
            **found,
            "argv": list(shown(Life(tuple(found["argv"])))),
            "seen": asdict(read_sight(found, is_taken=found["pid"] in self._taken)),
            "server": self._names.get(found["pid"]),
            "runs": None,
            "obstacle": None if obstacle is None else _tell_obstacle(obstacle),
        }
        asked = {"python": None, "package": package, "pid": found["pid"], "env": {}, "cwd": None}
        try:
            at = {"package": package, **self._call("locate", asked)}
            if at["package_dir"] not in [i.get("package_dir") for i in self.row["installs"]]:
                server["runs"] = at | {"pristine": self._check(at)}
        except HostError as error:
            _pass_on_loss(error)
            server["runs"] = {"package": package, "error": error.message}
        return server

    def _call(self, op: str, args: Mapping[str, Any]) -> Any:
        return self._agent.call(op, args, timeout_s=LOOK_S).value


def _tell_obstacle(error: HostError) -> list[str]:
    """Lines about what is in the way of a session, and what to do about it."""
    hints = [f"hint: {hint}" for hint in error.hints]
    return [f"no session could take it: {error.message}", *error.notes, *hints]


def _pass_on_loss(error: HostError) -> None:
    """A host that is lost has no more to show."""
    if error.code == "lost":
        raise error
