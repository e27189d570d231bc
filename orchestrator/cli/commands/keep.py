"""`sgldbg keep`: let an applied session stay without an end."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.commands.revert import read_session_hosts, show_outcomes
from orchestrator.cli.options import inventory_option, json_option, session_argument
from orchestrator.cli.render import say
from orchestrator.model.outcome import ExitCode
from orchestrator.session.hosts.contact import close_contacts, open_contacts
from orchestrator.session.left.keeping import keep_sessions
from orchestrator.transport.routes import open_transport


@click.command("keep")
@session_argument
@inventory_option
@json_option
def command(session_file: Path, inventory: Path | None, as_json: bool) -> None:
    """End the lease of what `sgldbg apply SESSION` placed: no host reverts by itself any more.

    The journals stay; `sgldbg revert SESSION` still puts everything back.
    """
    _, hosts, wanted = read_session_hosts(session_file, inventory)
    contacts = open_contacts(open_transport(), hosts)
    try:
        outcomes = keep_sessions(contacts, wanted)
    finally:
        close_contacts(contacts)
    show_outcomes(outcomes, as_json=as_json)
    if not outcomes:
        click.echo("nothing is applied there", err=True)
        raise SystemExit(int(ExitCode.REFUSED))
    if not all(o.ok for o in outcomes):
        raise SystemExit(int(ExitCode.NOT_RESTORED))
    say("no host reverts by itself; `sgldbg revert SESSION` puts everything back")
