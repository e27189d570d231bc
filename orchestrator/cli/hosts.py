"""`sgldbg hosts`: who answers, which SGLang, pristine or not, which server runs there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.options import inventory_option, read_hosts, read_inventory_file
from orchestrator.diagnostics import render
from orchestrator.errors import HostError
from orchestrator.model.inventory import Install, Inventory
from orchestrator.model.outcome import ExitCode
from orchestrator.session.contact import Contact, close_contacts, open_contacts
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
            rows = list(pool.map(lambda c: _look(c, book), contacts))
    finally:
        close_contacts(contacts)
    if as_json:
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        for contact, row in zip(contacts, rows, strict=True):
            _show(contact, row)
    if any(c.error is not None for c in contacts):
        raise SystemExit(int(ExitCode.REFUSED))


def _installs(contact: Contact, book: Inventory) -> Sequence[Install]:
    """The installs of the servers that the inventory places on this host."""
    names = {s.install for s in book.servers.values() if contact.host.name in s.hosts}
    return [book.installs[n] for n in sorted(names)]


def _look(contact: Contact, book: Inventory) -> dict[str, Any]:
    row: dict[str, Any] = {"host": contact.host.name, "servers": [], "installs": []}
    if contact.agent is None:
        row["error"] = contact.error.message if contact.error else ""
        return row
    hello = contact.agent.hello
    row["as"] = f"{hello['user']}@{hello['hostname']}"
    row["unfinished"] = [s["session"] for s in contact.sessions]
    for install in _installs(contact, book):
        found = contact.agent.call("find-servers", {"package": install.package}).value
        row["servers"] += found
        for pid in [s["pid"] for s in found] or [None]:
            row["installs"].append(_locate(contact, install, pid))
    return row


def _locate(contact: Contact, install: Install, pid: int | None) -> dict[str, Any]:
    assert contact.agent is not None
    args: dict[str, Any] = {
        "python": install.python,
        "package": install.package,
        "pid": pid,
        "env": {},
        "cwd": None,
    }
    try:
        value = dict(contact.agent.call("locate", args, timeout_s=60.0).value)
    except HostError as error:
        return {"name": install.name, "error": error.message}
    return {"name": install.name, **value}


def _show(contact: Contact, row: dict[str, Any]) -> None:
    if contact.error is not None:
        click.echo(render(contact.error), err=True)
        return
    click.echo(f"{row['host']}: {row['as']}")
    for install in row["installs"]:
        if "error" in install:
            click.echo(f"  install {install['name']}: {install['error']}")
        else:
            click.echo(
                f"  install {install['name']}: sglang {install['package_version'] or '?'}"
                f" in {install['package_dir']} (Python {install['version']})"
            )
    for server in row["servers"]:
        ports = ", ".join(str(p) for p in server["ports"]) or "none"
        click.echo(
            f"  server pid {server['pid']} of {server['user']}, port {ports}:"
            f" {' '.join(server['argv'][:8])}"
        )
        if not server["restorable"]:
            click.echo(f"    cannot be restored: {server['why']}")
    for session in row["unfinished"]:
        click.echo(f"  unfinished session {session}, see `sgldbg status`")
