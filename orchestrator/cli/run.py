"""`sgldbg run`: the main job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click

from orchestrator.cli.app import report_bug
from orchestrator.cli.interrupts import hold_signals, settle
from orchestrator.cli.job import open_run, read_job
from orchestrator.cli.live import LiveProgress
from orchestrator.cli.options import lease_length, project_options
from orchestrator.cli.render import error_facts
from orchestrator.diagnostics import make_visible, render, render_outcomes
from orchestrator.report.table import verdict_json, verdict_lines
from orchestrator.session.kept.ending import Ending


@click.command("run")
@click.argument("session_file", metavar="SESSION", type=click.Path(path_type=Path))
@project_options
@click.option(
    "--lease", type=lease_length, help="Length of the lease instead of the session's own."
)
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Where the run's directory is made.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
def command(
    session_file: Path,
    inventory: Path | None,
    patches: tuple[Path, ...],
    lease: float | None,
    runs: Path,
    as_json: bool,
) -> None:
    """Stage, restart, observe, revert and answer the question of SESSION.

    Exit code 0: every expectation holds and every host is as it was. 1: an expectation does not
    hold. 7: a host is not as it was. `docs/reference/exit-codes.md` lists the others.
    """
    job = read_job(session_file, inventory, patches, runs, lease)
    with LiveProgress([h.name for h in job.hosts]) as progress:
        run = open_run(job, progress)
        hold_signals()
        ending = run.execute()
        settle(int(ending.exit_code))
    show_ending(ending, as_json=as_json)
    raise SystemExit(int(ending.exit_code))


def show_ending(ending: Ending, *, as_json: bool) -> None:
    """The verdict on stdout; what failed, and every host's state, on stderr."""
    if as_json:
        click.echo(json.dumps(ending_facts(ending), indent=2, ensure_ascii=False))
    elif ending.verdict is not None:
        for line in verdict_lines(ending.verdict):
            click.echo(make_visible(line))
    said = render(ending.cause) if ending.cause is not None else ""
    if said:
        click.echo(said, err=True)
    if ending.cause is None or not ending.cause.outcomes:
        plain = [replace(o, message="") for o in ending.outcomes]
        for line in render_outcomes(plain):
            click.echo(line, err=True)
    for outcome in ending.outcomes:
        for line in outcome.message.split("; ") if outcome.message else ():
            if line not in said:
                click.echo(f"{outcome.host}: {line}", err=True)
    if ending.run_dir is not None:
        click.echo(f"run directory: {ending.run_dir}", err=True)
    if ending.bug is not None:
        report_bug(ending.bug)


def ending_facts(ending: Ending) -> dict[str, object]:
    """The same facts as JSON."""
    cause = ending.cause
    return {
        "session": ending.session_id,
        "question": ending.question,
        "exit_code": int(ending.exit_code),
        "verdict": verdict_json(ending.verdict) if ending.verdict else None,
        "error": error_facts(cause) if cause is not None else None,
        "bug": None if ending.bug is None else f"{type(ending.bug).__name__}: {ending.bug}",
        "hosts": {
            o.host: {"files": o.state, "server": o.server, "message": o.message}
            for o in ending.outcomes
        },
        "run_dir": str(ending.run_dir) if ending.run_dir else None,
    }
