"""`sgldbg hosts`: who answers, which SGLang, pristine or not, which server runs there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.options import inventory_option, read_hosts, read_inventory_file
from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, Inventory
from orchestrator.servers.adopt import show
from orchestrator.servers.base import Life, shown
from orchestrator.session.contact import Contact, close_contacts, join_errors, open_contacts
from orchestrator.session.observe import with_place
from orchestrator.transport.routes import open_transport


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


def _installs(contact: Contact, book: Inventory) -> Sequence[Install]:
    """The installs of the servers that the inventory places on this host."""
    names = {s.install for s in book.servers.values() if contact.host.name in s.hosts}
    return [book.installs[n] for n in sorted(names)]


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
    errors: dict[str, HostError] = {}
    hello = contact.agent.hello
    row["as"] = f"{hello['user']}@{hello['hostname']}"
    row["unfinished"] = [s["session"] for s in contact.sessions]
    for install in _installs(contact, book):
        found = contact.agent.call("find-servers", {"package": install.package}).value
        row["servers"] += [s | {"argv": list(shown(Life(tuple(s["argv"]))))} for s in found]
        for pid in [s["pid"] for s in found] or [None]:
            try:
                at = {"name": install.name, **_locate(contact, install, pid)}
            except HostError as error:
                if error.code == "lost":
                    raise
                if error.code == "gone":  # it ended since the question before
                    continue
                errors[error.message] = with_place(error, install)
                at = {"name": install.name, "error": error.message}
            if at not in row["installs"]:
                row["installs"].append(at)
    return list(errors.values())


def _locate(contact: Contact, install: Install, pid: int | None) -> dict[str, Any]:
    assert contact.agent is not None
    args: dict[str, Any] = {
        "python": install.python,
        "package": install.package,
        "pid": pid,
        "env": {},
        "cwd": None,
    }
    value: dict[str, Any] = contact.agent.call("locate", args, timeout_s=60.0).value
    return {"package": install.package, **value}


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
    for server in row["servers"]:
        click.echo(f"  server {show(server)}")
        if not server["restorable"]:
            click.echo(f"    cannot be restored: {server['why']}")
    for session in row["unfinished"]:
        click.echo(f"  unfinished session {session}, see `sgldbg status`")
