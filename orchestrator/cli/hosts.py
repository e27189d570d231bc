"""`sgldbg hosts`: who answers, which SGLang, pristine or not, which server runs there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from orchestrator.agent.client import AgentClient
from orchestrator.cli.options import find_hosts, inventory_option, read_inventory_file
from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, Inventory, Server
from orchestrator.servers.base import Found, Life, shown
from orchestrator.servers.survey import (
    Sight,
    describe_origin,
    describe_orphans,
    describe_sight,
    read_sight,
)
from orchestrator.session.contact import Contact, close_contacts, join_errors, open_contacts
from orchestrator.session.member import Member
from orchestrator.session.observe import find_life, locate
from orchestrator.transport.routes import open_transport

# All files of a package are read, and drivers of GPUs that sleep take seconds to answer.
_LOOK_S = 60.0


@click.command("hosts")
@click.argument("hosts", nargs=-1)
@inventory_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def command(hosts: tuple[str, ...], inventory: Path | None, as_json: bool) -> None:
    """Show what is found on HOSTS (hosts or groups; all of the inventory by default)."""
    book = read_inventory_file(inventory)
    contacts = open_contacts(open_transport(), find_hosts(book, hosts))
    try:
        with ThreadPoolExecutor(max(1, min(32, len(contacts)))) as pool:
            looked = list(pool.map(lambda c: _look(c, book), contacts))
    finally:
        close_contacts(contacts)
    if as_json:
        click.echo(json.dumps([row for row, _ in looked], indent=2, ensure_ascii=False))
    else:
        for row, _ in looked:
            if "error" not in row:
                _show(row)
    error = join_errors(
        [e for _, errors in looked for e in errors], "not all is right on", "untouched"
    )
    if error is not None:
        raise error


def _look(contact: Contact, book: Inventory) -> tuple[dict[str, Any], list[HostError]]:
    """What a host holds, and what is wrong there."""
    row: dict[str, Any] = {"host": contact.host.name, "servers": [], "installs": []}
    failure = contact.error
    if failure is None:
        try:
            return row, _fill(row, contact, book)
        except HostError as error:  # it was lost meanwhile
            failure = error
    return row | {"error": failure.message, "code": failure.code}, [failure]


def _fill(row: dict[str, Any], contact: Contact, book: Inventory) -> list[HostError]:
    """Fill in what is there; returns an error for everything that is wrong there."""
    assert contact.agent is not None
    errors: list[HostError] = []
    hello = contact.agent.hello
    row["as"] = f"{hello['user']}@{hello['hostname']}"
    row["unfinished"] = [s["session"] for s in contact.sessions]
    row["not_found"], row["orphans"] = [], []
    names: dict[int, str] = {}
    for server in [s for s in book.servers.values() if contact.host.name in s.hosts]:
        install = book.installs[server.install]
        member, error = _find(contact, server, install)
        if error is not None:
            row["not_found"].append({"server": server.name, "error": error.message})
            # A server that does not run is a fact; one that no session could take is wrong.
            errors += [error] if error.code != "server-not-found" else []
        elif member.found is not None and member.found.description is not None:
            names[member.found.description["pid"]] = server.name
        at, error = _look_at_install(member, server, install)
        errors += [error] if error is not None else []
        if at not in row["installs"]:
            row["installs"].append(at)
    for package in dict.fromkeys(at["package"] for at in row["installs"]):
        found = contact.agent.call("survey", {"package": package}, timeout_s=_LOOK_S).value
        row["servers"] += [_fill_server(s, names, row, package, contact) for s in found]
        row["orphans"] += contact.agent.call(
            "orphans", {"package": package}, timeout_s=_LOOK_S
        ).value
    return errors


def _find(contact: Contact, server: Server, install: Install) -> tuple[Member, HostError | None]:
    """The server's process on this host, or why there is none that a session could take."""
    member = Member(contact.host, server.hosts.index(contact.host.name), agent=contact.agent)
    try:
        member.found = find_life(member, server, install, len(server.hosts))
    except HostError as error:
        if error.code == "lost":
            raise
        member.found = Found(contact.host.name, None, Life(()))
        return member, error
    return member, None


def _look_at_install(
    member: Member, server: Server, install: Install
) -> tuple[dict[str, Any], HostError | None]:
    """Where the install stands for the server that runs there, or would be started there."""
    at = {"name": install.name, "package": install.package}
    try:
        at |= locate(member, server, install)
        return at | {"pristine": _check(member.channel, at)}, None
    except HostError as error:
        if error.code == "lost":
            raise
        return at | {"error": error.message}, error


def _check(agent: AgentClient, at: Mapping[str, Any]) -> Any:
    asked = {name: at[name] for name in ("root", "package", "dist_info")}
    return agent.call("pristine", asked, timeout_s=_LOOK_S).value


def _fill_server(
    found: Mapping[str, Any],
    names: Mapping[int, str],
    row: Mapping[str, Any],
    package: str,
    contact: Contact,
) -> dict[str, Any]:
    """One running server; `runs` is its install where the inventory names none like it."""
    assert contact.agent is not None
    server = {
        **found,
        "argv": list(shown(Life(tuple(found["argv"])))),
        "seen": asdict(read_sight(found)),
        "server": names.get(found["pid"]),
        "runs": None,
    }
    asked = {"python": None, "package": package, "pid": found["pid"], "env": {}, "cwd": None}
    try:
        at = {"package": package, **contact.agent.call("locate", asked, timeout_s=60.0).value}
        if at["package_dir"] not in [i.get("package_dir") for i in row["installs"]]:
            server["runs"] = at | {"pristine": _check(contact.agent, at)}
    except HostError as error:
        if error.code == "lost":
            raise
        server["runs"] = {"package": package, "error": error.message}
    return server


def _show(row: dict[str, Any]) -> None:
    click.echo(f"{row['host']}: {row['as']}")
    for install in row["installs"]:
        _show_install(f"install {install['name']}", install, "  ")
    for server in row["servers"]:
        for line in describe_sight(Sight(**server["seen"]), server["server"]):
            click.echo(f"  {line}")
        if server["runs"] is not None:
            _show_install("runs", server["runs"], "    ")
    for missing in row["not_found"]:
        click.echo(f"  server {missing['server']}: {missing['error']}")
    for line in describe_orphans(row["orphans"]):
        click.echo(f"  {line}")
    for session in row["unfinished"]:
        click.echo(f"  unfinished session {session}, see `sgldbg status`")


def _show_install(head: str, install: Mapping[str, Any], indent: str) -> None:
    if "error" in install:
        click.echo(f"{indent}{head}: {install['error']}")
        return
    click.echo(
        f"{indent}{head}: {install['package']} {install['package_version'] or 'of unknown version'}"
        f" in {install['package_dir']} (Python {install['version']})"
    )
    click.echo(f"{indent}  {describe_origin(install['pristine'])}")
