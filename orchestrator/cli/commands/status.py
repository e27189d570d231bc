"""`sgldbg status`: is anything still patched, where, by whom, until when?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.options import find_hosts, inventory_option, json_option, read_inventory_file
from orchestrator.cli.render import say, say_error, show_json, show_line
from orchestrator.diagnostics import fold_hosts
from orchestrator.model.outcome import ExitCode
from orchestrator.session.hosts.contact import (
    Contact,
    close_contacts,
    find_new_machines,
    list_notes,
    open_contacts,
    show_time,
    unreached,
)
from orchestrator.session.hosts.held import tell_end, tell_lease, tell_who_ends
from orchestrator.session.steps.regain import GUARD_LEFT
from orchestrator.session.steps.stages import COMPARE
from orchestrator.transport.routes import open_transport


@click.command("status")
@click.argument("hosts", nargs=-1)
@inventory_option
@json_option
def command(hosts: tuple[str, ...], inventory: Path | None, as_json: bool) -> None:
    """Show the unfinished sessions of HOSTS (hosts or groups; all of the inventory by default).

    Exit code 0: everything is as it was, also where the report of a guard that has seen to it
    waits to be read. 7: something is left, or a host did not answer.
    """
    book = read_inventory_file(inventory)
    contacts = open_contacts(open_transport(), find_hosts(book, hosts), book)
    try:
        if as_json:
            show_json({c.host.name: _facts(c) for c in contacts})
        else:
            _show(contacts)
    finally:
        close_contacts(contacts)
    if any(c.error or not all(map(is_over, c.sessions)) for c in contacts):
        raise SystemExit(int(ExitCode.NOT_RESTORED))


def is_over(session: Mapping[str, Any]) -> bool:
    """Whether its guard has put everything back, so that it is only to be closed."""
    return bool(session.get("over"))


def _facts(contact: Contact) -> dict[str, Any]:
    if contact.error is not None:
        return {"error": contact.error.message, "code": contact.error.code}
    return {"sessions": [dict(s) for s in contact.sessions], "notes": list(contact.notes)}


def _show(contacts: list[Contact]) -> None:
    clean = [c.host.name for c in contacts if c.error is None and not c.sessions]
    if clean:
        click.echo(f"{fold_hosts(clean)}: nothing is left")
    for contact in contacts:
        for session in contact.sessions:
            for line in session_lines(session):
                show_line(f"{contact.host.name}: {line}")
    error = unreached(contacts, "unknown")
    if error is not None:
        say_error(error)
    for note in list_notes(contacts):
        say(f"note: {note}")
    reached = {c.host.name for c in contacts if c.error is None} - find_new_machines(contacts)
    every = [session for contact in contacts for session in contact.sessions]
    for hint in hints(every, reached):
        say(f"hint: {hint}")


def hints(sessions: Sequence[Mapping[str, Any]], reached: Collection[str] = ()) -> list[str]:
    """What `revert --all` would do about these sessions, and what it would not.

    `reached` are the hosts that answered: of these none is gone.
    """
    left = [session for session in sessions if not is_over(session)]
    named = [hint for session in left if (hint := tell_who_ends(session)) is not None]
    left = [session for session in left if session.get("ends") is None]
    found = {session["controller"] for session in left}
    all_hints = {
        "alive": "a session that is at work ends by itself; `sgldbg revert --all` passes it over",
        "elsewhere": "a session of another machine is ended there",
    }
    said = [hint for state, hint in all_hints.items() if state in found]
    away = [s for s in sessions if s["controller"] == "elsewhere" and s.get("lock")]
    hosts = [s["host"] for s in away if s["host"] not in reached]
    said += [f"{_ENDS_THERE} {host}`" for host in dict.fromkeys(hosts)]
    ours = [_is_drift(s) for s in left if s["controller"] not in all_hints]
    if False in ours:
        said.append("`sgldbg revert --all` ends what is left" + (_BUT_DRIFT if any(ours) else ""))
    said += [COMPARE] if any(ours) else []
    said += dict.fromkeys(named)
    closed = "what a guard has reverted is as it was; `sgldbg revert --all` takes its report away"
    return said + ([closed] if any(map(is_over, sessions)) else [])


def _is_drift(session: Mapping[str, Any]) -> bool:
    """Whether somebody changed a file of it since: no revert takes that away by itself."""
    return any(file["state"] == "drift" for file in session.get("files", ()))


_BUT_DRIFT = ", but not what drifted"
_ENDS_THERE = "should that machine never come back: `sgldbg revert --all --gone"


def session_lines(session: Mapping[str, Any]) -> list[str]:
    """One unfinished session in words."""
    if session.get("elsewhere"):
        lines = [f"{_begun(session)}: {session['state']}, to be seen there"]
        lines += [f"  known from {session['lock']}"] if session.get("lock") else []
        return lines + [line for f in session["files"] for line in _file_lines(f)]
    guard = f"guard {session['guard']}"
    if "until" in session:
        until = tell_end(session)
    elif session["expired"]:  # also where there is no lease that could name an end
        until = "its lease is over"
    else:
        until = tell_lease(session)
        guard = guard if session["deadline_s"] is not None else "no guard"
    lines = [f"{_begun(session)}: {session['state']}, {until}, {guard}, server {session['server']}"]
    if session.get("lock"):
        gone = f", {session['lost']} is gone" if session["lost"] else ""
        lines.append(f"  known from {session['lock']}{gone}")
    if session.get("why_not"):
        lines.append(f"  not undone from here: {session['why_not']}")
    lines += [line for f in session["files"] for line in _file_lines(f)]
    # What a guard had to leave at first, and has seen to since, is left no more.
    told = [t for t in session["report"] if not (is_over(session) and t.startswith(GUARD_LEFT))]
    return lines + [f"  guard: {line}" for line in told]


def _begun(session: Mapping[str, Any]) -> str:
    """Which session it is; one that ended before its first line says no more than its name."""
    holder = session["holder"] or "an unknown holder"
    name = session["session"] or "of an unknown name"
    return f"session {name} of {holder} since {show_time(session['since'])}"


def _file_lines(file: Mapping[str, Any]) -> list[str]:
    lines = [f"  {file['path']}: {file['state']}"]
    return lines + ([f"    its original is {file['kept']}"] if file.get("kept") else [])
