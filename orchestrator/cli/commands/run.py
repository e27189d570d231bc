"""`sgldbg run`: the main job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from orchestrator.cli.interrupts import hold_signals, settle
from orchestrator.cli.job import open_run, read_job
from orchestrator.cli.live import LiveProgress
from orchestrator.cli.options import (
    UserPath,
    json_option,
    lease_length,
    project_options,
    session_argument,
)
from orchestrator.cli.render import failure_facts, report_bug, say, say_error, show_json, show_line
from orchestrator.diagnostics import make_visible, render_outcomes
from orchestrator.report.table import verdict_json, verdict_lines
from orchestrator.session.job import Job
from orchestrator.session.kept.ending import Ending
from orchestrator.session.run import Run


@click.command("run")
@session_argument
@project_options
@click.option(
    "--lease", type=lease_length, help="Length of the lease instead of the session's own."
)
@click.option(
    "--runs",
    type=UserPath(),
    default=Path("runs"),
    show_default=True,
    help="Where the run's directory is made.",
)
@json_option
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
    ending = carry_out(job, Run.execute, as_json=as_json)
    raise SystemExit(int(ending.exit_code))


def carry_out(job: Job, work: Callable[[Run], Ending], *, as_json: bool) -> Ending:
    """Have a run of this job do its work, and show how it ended."""
    with LiveProgress([h.name for h in job.hosts]) as progress:
        run = open_run(job, progress)
        hold_signals()
        ending = work(run)
        settle(int(ending.exit_code))
    show_ending(ending, as_json=as_json)
    return ending


def show_ending(ending: Ending, *, as_json: bool) -> None:
    """The verdict on stdout; what failed, and every host's state, on stderr."""
    if as_json:
        show_json(ending_facts(ending))
    elif ending.verdict is not None:
        for line in verdict_lines(ending.verdict):
            click.echo(make_visible(line))
    said = say_error(ending.cause) if ending.cause is not None else ""
    if ending.cause is None or not ending.cause.outcomes:
        plain = [replace(o, message="") for o in ending.outcomes]
        for line in render_outcomes(plain):
            click.echo(line, err=True)
    for outcome in ending.outcomes:
        for line in outcome.message.split("; ") if outcome.message else ():
            if line not in said:
                say(f"{outcome.host}: {line}")
    if ending.run_dir is not None:
        show_line(f"run directory: {ending.run_dir}", err=True)
    if ending.bug is not None:
        report_bug(ending.bug)


def ending_facts(ending: Ending) -> dict[str, object]:
    """The same facts as JSON."""
    return {
        "session": ending.session_id,
        "question": ending.question,
        "verdict": verdict_json(ending.verdict) if ending.verdict else None,
        **failure_facts(ending.exit_code, ending.cause, ending.bug, ending.outcomes),
        "run_dir": str(ending.run_dir) if ending.run_dir else None,
    }
