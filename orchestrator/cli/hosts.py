"""`sgldbg hosts`: who answers, which SGLang, pristine or not, which server runs there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.options import inventory_option, read_hosts, read_inventory_file
from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, Inventory, Server
from orchestrator.servers.base import Found, Life, shown
from orchestrator.servers.survey import Sight, describe_origin, describe_sight, read_sight
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
    contacts = open_contacts(open_transport(), read_hosts(inventory, hosts))
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
    """Fill in what is there; returns an error for every install that is not."""
    assert contact.agent is not None
    errors: list[HostError] = []
    hello = contact.agent.hello
    row["as"] = f"{hello['user']}@{hello['hostname']}"
    row["unfinished"] = [s["session"] for s in contact.sessions]
    for server in [s for s in book.servers.values() if contact.host.name in s.hosts]:
        install = book.installs[server.install]
        try:
            at = {"name": install.name, "package": install.package}
            at |= _locate(contact, server, install)
            asked = {name: at[name] for name in ("root", "package", "dist_info")}
            checked = contact.agent.call("pristine", asked, timeout_s=_LOOK_S).value
            at |= {"pristine": checked}
        except HostError as error:
            if error.code == "lost":
                raise
            errors.append(error)
            at |= {"error": error.message}
        if at not in row["installs"]:
            row["installs"].append(at)
    for package in dict.fromkeys(at["package"] for at in row["installs"]):
        found = contact.agent.call("survey", {"package": package}, timeout_s=_LOOK_S).value
        row["servers"] += [
            s | {"argv": list(shown(Life(tuple(s["argv"])))), "seen": asdict(read_sight(s))}
            for s in found
        ]
    return errors


def _locate(contact: Contact, server: Server, install: Install) -> Mapping[str, Any]:
    """Where the install stands for the server that runs there, or would be started there."""
    member = Member(contact.host, server.hosts.index(contact.host.name), agent=contact.agent)
    try:
        member.found = find_life(member, server, install, len(server.hosts))
    except HostError as error:
        if error.code != "server-not-found":
            raise
        member.found = Found(contact.host.name, None, Life(()))
    return locate(member, server, install)


def _show(row: dict[str, Any]) -> None:
    click.echo(f"{row['host']}: {row['as']}")
    for install in row["installs"]:
        if "error" in install:
            click.echo(f"  install {install['name']}: {install['error']}")
        else:
            click.echo(
                f"  install {install['name']}: {install['package']}"
                f" {install['package_version'] or 'of unknown version'}"
                f" in {install['package_dir']} (Python {install['version']})"
            )
            click.echo(f"    {describe_origin(install['pristine'])}")
    for server in row["servers"]:
        for line in describe_sight(Sight(**server["seen"])):
            click.echo(f"  {line}")
    for session in row["unfinished"]:
        click.echo(f"  unfinished session {session}, see `sgldbg status`")
