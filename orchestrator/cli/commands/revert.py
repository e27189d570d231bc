"""`sgldbg revert`: end what an `apply`, or a controller that died, left on the hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from orchestrator.cli.given import complete, note_given
from orchestrator.cli.live import LiveProgress
from orchestrator.cli.options import UserPath, inventory_option, json_option, read_inventory_file
from orchestrator.cli.render import say, show_json, show_line
from orchestrator.diagnostics import fold_hosts
from orchestrator.model.inventory import Host, Inventory
from orchestrator.model.outcome import ExitCode, Outcome, is_as_before
from orchestrator.session.hosts.contact import (
    Contact,
    close_contacts,
    list_notes,
    open_contacts,
)
from orchestrator.session.kept.ending import outcome_line
from orchestrator.session.left.parts import Wanted, all_sessions, find_answering, is_of
from orchestrator.session.left.undo import Undo
from orchestrator.transport.routes import open_transport


@click.command("revert")
@click.argument(
    "session_file",
    metavar="[SESSION]",
    required=False,
    type=UserPath(),
    callback=note_given,
)
@click.option("--all", "everything", is_flag=True, help="Every unfinished session on every host.")
@click.option("--force", is_flag=True, help="Put originals back over files changed meanwhile.")
@click.option("--take", is_flag=True, help="Also sessions that a live controller is working on.")
@click.option(
    "--gone",
    multiple=True,
    metavar="HOST",
    help="HOST never comes back: undo what it left in an install that others share.",
)
@inventory_option
@json_option
def command(
    session_file: Path | None,
    everything: bool,
    force: bool,
    take: bool,
    gone: tuple[str, ...],
    inventory: Path | None,
    as_json: bool,
) -> None:
    """Stop the patched server, put every file back, verify, start the original again.

    For the sessions made from the file SESSION, or with --all for whatever is unfinished on the
    hosts of the inventory. Exit code 0: every host is as it was. 7: one is not.
    """
    if (session_file is None) == (not everything):
        raise click.UsageError("name one session file, or --all")
    wanted: Wanted = all_sessions
    if session_file is None:
        book = read_inventory_file(inventory)
        hosts = tuple(book.hosts.values())
    else:
        book, hosts, wanted = read_session_hosts(session_file, inventory)
    transport = open_transport()
    contacts = open_contacts(transport, hosts, book)
    try:
        _refuse_answering(contacts, gone)
        with LiveProgress([h.name for h in hosts]) as progress:
            undo = Undo(contacts, book, transport, progress, force, take, gone)
            outcomes = undo.end(wanted)
    finally:
        close_contacts(contacts)
    show_outcomes(outcomes, as_json=as_json)
    for note in list_notes(contacts):
        say(f"note: {note}")
    if not is_as_before(outcomes) or not all(o.ok for o in outcomes):
        raise SystemExit(int(ExitCode.NOT_RESTORED))


def _refuse_answering(contacts: Sequence[Contact], gone: Sequence[str]) -> None:
    names = find_answering(contacts, gone)
    if names:
        raise click.UsageError(
            complete(
                f"--gone: {fold_hosts(names)} answered; `sgldbg revert --all` ends its sessions"
                " there"
            )
        )


def read_session_hosts(
    session_file: Path, inventory: Path | None
) -> tuple[Inventory, tuple[Host, ...], Wanted]:
    """The inventory, the hosts of the session's server, and how its sessions are told there."""
    from orchestrator.spec.project import load_project

    project = load_project(session_file, inventory)
    names = project.inventory.servers[project.session.server].hosts
    hosts = tuple(project.inventory.hosts[n] for n in names)
    return project.inventory, hosts, is_of(project.session.name)


def show_outcomes(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    """Hosts with the same outcome on one line; failures on stderr."""
    if as_json:
        show_json(
            {
                o.host: {
                    "ok": o.ok,
                    "files": o.state,
                    "server": o.server,
                    "message": complete(o.message),
                    "hints": [complete(hint) for hint in o.hints],
                }
                for o in outcomes
            }
        )
        return
    by_text: dict[tuple[bool, str], list[str]] = {}
    for o in outcomes:
        # A host on which there was nothing to do has no state to speak of.
        text = o.message if o.message and o == _nothing(o) else _with_message(o)
        by_text.setdefault((o.ok, text), []).append(o.host)
    for (ok, text), hosts in by_text.items():
        show_line(complete(f"{fold_hosts(hosts)}: {text}"), err=not ok)
    for hint in dict.fromkeys(hint for o in outcomes for hint in o.hints):
        say(f"hint: {hint}")


def _nothing(outcome: Outcome) -> Outcome:
    return Outcome(outcome.host, outcome.stage, True, message=outcome.message)


def _with_message(outcome: Outcome) -> str:
    return outcome_line(outcome) + (f" ({outcome.message})" if outcome.message else "")
