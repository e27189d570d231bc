"""`sgldbg ask`: another question to a placed probe, without a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.options import (
    duration,
    json_option,
    lease_length,
    project_options,
    session_argument,
)
from orchestrator.cli.render import say, say_error, show_json, show_line
from orchestrator.errors import HostError, OrchestratorError
from orchestrator.logs.parse import label_of_title
from orchestrator.model.inventory import Server
from orchestrator.model.outcome import ExitCode
from orchestrator.model.patch import Capture
from orchestrator.model.record import Record
from orchestrator.model.session import Session
from orchestrator.servers.exercise import exercise
from orchestrator.session import asking
from orchestrator.session.answer.evidence import value_text
from orchestrator.session.engine import Engine
from orchestrator.session.hosts.contact import close_contacts, open_contacts, unreached
from orchestrator.session.left.parts import is_of
from orchestrator.spec.fields import parse_expression
from orchestrator.spec.project import Project, load_project
from orchestrator.transport.routes import open_transport

_LEASE_S = 3600.0


def _only_one(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> str | None:
    """The one value; of two, neither is dropped without a word."""
    if len(values) > 1:
        raise click.BadParameter("given more than once: a question is for one site, with one"
                                 " condition", context, parameter)  # fmt: skip
    return values[0] if values else None


@click.command("ask")
@session_argument
@click.option("--site", required=True, multiple=True, callback=_only_one,
              help="The site, like `eagle3-draft-input.1`.")  # fmt: skip
@click.option("--capture", multiple=True, required=True, metavar="EXPRESSION", help="What to show.")
@click.option("--when", metavar="EXPRESSION", multiple=True, callback=_only_one,
              help="Only hits where this holds count.")  # fmt: skip
@click.option("--once-per", multiple=True, metavar="EXPRESSION", help="One record for each value.")
@click.option("--limit", type=click.IntRange(min=1), default=3, show_default=True,
              help="Records per process.")  # fmt: skip
@click.option("--exercise", "send", is_flag=True, help="Send the session's requests, too.")
@click.option("--timeout", type=duration, default="10s", show_default=True, metavar="DURATION",
              help="How long to wait for answers.")  # fmt: skip
@click.option("--lease", type=lease_length, metavar="DURATION",
              help="When the hosts revert by themselves, from now on; default: after as long as"
              " `apply` said.")  # fmt: skip
@project_options
@json_option
def command(
    session_file: Path,
    site: str,
    capture: tuple[str, ...],
    when: str | None,
    once_per: tuple[str, ...],
    limit: int,
    send: bool,
    timeout: float,
    lease: float | None,
    inventory: Path | None,
    patches: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Ask a probe that `sgldbg apply SESSION` placed something else, while the server runs.

    The expressions are checked against the place; then every process takes the new question within
    a fifth of a second, and the answers are shown as soon as every process that has reached the
    site before has given one, or the time is over. Exit code 1: no answer came in time.
    """
    condition = next(iter(_codes((when,) if when is not None else ())), None)
    question = asking.Question(site, _codes(capture), condition, _codes(once_per), limit)
    project = load_project(session_file, inventory, patches)
    wanted = is_of(project.session.name)
    contacts = open_contacts(open_transport(), project.hosts)
    failed: Sequence[HostError] = ()
    try:
        silent = unreached(contacts, "unknown")
        if silent is not None:
            raise silent
        asked = asking.open_asked(contacts, wanted)
        lease_s = lease or max(float(one.left["lease_s"]) for one in asked)
        try:
            with asking.hold_leases(asked, lease_s):
                found, missing = _ask(project, asked, question, timeout, send=send)
        finally:
            failed = asking.let_go(asked, lease_s)
    except OrchestratorError as error:
        # What `apply` left is not as it was before it: each host's state is said, never implied.
        error.outcomes = asking.tell_states(contacts, wanted, {one.host for one in failed})
        error.exit_code = ExitCode.NOT_RESTORED if failed else error.exit_code
        raise
    finally:
        close_contacts(contacts)
    _show(found, question, as_json=as_json)
    for worker in missing if found else ():
        say(f"note: no answer of {worker} came in time")
    if lease and any(one.left["controller"] == "kept" for one in asked):
        say("note: --lease changes nothing here: `sgldbg keep` has ended the lease")
    return _end(found, asked, failed, lease_s)


def _ask(
    project: Project,
    asked: Sequence[asking.Asked],
    question: asking.Question,
    timeout_s: float,
    *,
    send: bool,
) -> tuple[list[Record], list[str]]:
    """Check the question on every host, put it, and wait for answers; also who gave none."""
    package = project.inventory.installs[project.server.install].package
    with Engine() as engine:
        checked = [asking.check_question(engine, one, question, package) for one in asked]
    for warning in dict.fromkeys(w for warnings in checked for w in warnings):
        say(f"warning: {warning}")
    posed = asking.put_question(asked, question)
    if send:
        _exercise(asked[0], project.server, project.session, package)
    found = asking.wait_for_answers(asked, posed, timeout_s)
    return found, posed.missing(found)


def _codes(texts: Sequence[str]) -> tuple[Capture, ...]:
    codes = []
    for text in texts:
        try:
            code = parse_expression(text)
        except ValueError as error:
            raise click.BadParameter(f"`{text}`: {error}") from None
        codes.append(Capture(code, code))
    return tuple(codes)


def _exercise(one: asking.Asked, server: Server, session: Session, package: str) -> None:
    """Send the session's requests from the server's first host."""
    port = int(server.url.rsplit(":", 1)[-1]) if server.url.rsplit(":", 1)[-1].isdigit() else 0
    lives = one.agent.call("find-servers", {"package": package}).value
    life = next((x for x in lives if port in x["ports"]), lives[0] if lives else None)
    if life is None:
        raise HostError("no server runs there", host=one.name, code="gone")
    known: Mapping[str, Any] = {
        **life,
        "stdout": life["stdout"].get("path"),
        "stderr": life["stderr"].get("path"),
    }
    for response in exercise(one.agent, server, session.exercise, known):
        if not response.ok:
            say(f"warning: {response.method} {response.path}: {response.error}")


def _show(records: Sequence[Record], question: asking.Question, *, as_json: bool) -> None:
    if as_json:
        show_json([asdict(r) for r in records])
        return
    for record in records:
        worker = label_of_title(record.title) or f"pid {record.pid}"
        values = [value_text(name, value) for name, value in record.values.items()]
        keys = zip(question.once_per, record.keys, strict=False)  # a skip may have none
        values += [value_text(c.name, key) for c, key in keys if c.name not in record.values]
        values += [f"{name}: {text}" for name, text in record.errors.items()]
        note = f"({record.note})" if record.note else ""
        # Captured text may come from a user's prompt: one line, and nothing for the terminal.
        said = " ".join(filter(None, [", ".join(values), note]))
        show_line(f"{record.host} {worker} {record.kind}: {said}")


def _end(
    found: Sequence[Record],
    asked: Sequence[asking.Asked],
    failed: Sequence[HostError],
    lease_s: float,
) -> int:
    for error in failed:
        say_error(error)
    if all(one.left["controller"] == "kept" for one in asked):
        say("no host reverts by itself; `sgldbg revert SESSION` puts everything back")
    else:
        click.echo(f"every host reverts by itself in {lease_s:g} s", err=True)
    if failed:
        return ExitCode.NOT_RESTORED
    if not any(record.kind == "hit" for record in found):
        # Where it was reached and something raised, the records above say what.
        raised = any(record.kind == "error" for record in found)
        why = "`--when` could not be evaluated" if raised else (
            "the site was not reached, or `--when` did not hold"
        )  # fmt: skip
        click.echo(f"no answer came in time: {why}", err=True)
        return ExitCode.NOT_AS_EXPECTED
    return ExitCode.DONE
