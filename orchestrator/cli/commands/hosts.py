"""`sgldbg hosts`: who answers, which SGLang, pristine or not, which server runs there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.given import complete
from orchestrator.cli.options import find_hosts, inventory_option, json_option, read_inventory_file
from orchestrator.cli.render import show_json, show_line
from orchestrator.servers.survey import Sight, describe_origin, describe_orphans, describe_sight
from orchestrator.session.hosts.contact import close_contacts, join_errors, open_contacts
from orchestrator.session.overview import look_at_all
from orchestrator.transport.routes import open_transport


@click.command("hosts")
@click.argument("hosts", nargs=-1)
@inventory_option
@json_option
def command(hosts: tuple[str, ...], inventory: Path | None, as_json: bool) -> None:
    """Show what is found on HOSTS (hosts or groups; all of the inventory by default)."""
    book = read_inventory_file(inventory)
    contacts = open_contacts(open_transport(), find_hosts(book, hosts))
    try:
        looked = look_at_all(contacts, book)
    finally:
        close_contacts(contacts)
    if as_json:
        show_json([row for row, _ in looked])
    else:
        for row, _ in looked:
            if "error" not in row:
                _show(row)
    error = join_errors(
        [e for _, errors in looked for e in errors], "not all is right on", "untouched"
    )
    if error is not None:
        raise error


def _show(row: dict[str, Any]) -> None:
    show_line(f"{row['host']}: {row['as']}")
    for install in row["installs"]:
        _show_install(f"install {install['name']}", install, "  ")
    for server in row["servers"]:
        for line in describe_sight(Sight(**server["seen"]), server["server"]):
            show_line(f"  {line}")
        for line in server["obstacle"] or ():
            show_line(f"    {line}")
        if server["runs"] is not None:
            _show_install("runs", server["runs"], "    ")
    named = {server["server"] for server in row["servers"]}
    for missing in [m for m in row["not_found"] if m["server"] not in named]:
        show_line(f"  server {missing['server']}: {missing['error']}")
    for line in describe_orphans(row["orphans"]):
        show_line(f"  {line}")
    for session in row["unfinished"]:
        show_line(complete(f"  unfinished session {session}, see `sgldbg status`"))


def _show_install(head: str, install: Mapping[str, Any], indent: str) -> None:
    if "error" in install:
        show_line(f"{indent}{head}: {install['error']}")
        return
    show_line(
        f"{indent}{head}: {install['package']} {install['package_version'] or 'of unknown version'}"
        f" in {install['package_dir']} (Python {install['version']})"
    )
    show_line(f"{indent}  {describe_origin(install['pristine'])}")
