"""`sgldbg plan`: connect, look, and show exactly what `run` would do; writes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from orchestrator.cli.job import read_job
from orchestrator.cli.live import LiveProgress
from orchestrator.cli.options import project_options
from orchestrator.diagnostics import fold_hosts
from orchestrator.model.plan import Plan
from orchestrator.servers.base import shown
from orchestrator.session.kept.rundir import RunDir, plan_facts
from orchestrator.session.run import Run, new_session_id


@click.command("plan")
@click.argument("session_file", metavar="SESSION", type=click.Path(path_type=Path))
@project_options
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON on stdout.")
def command(
    session_file: Path, inventory: Path | None, patches: tuple[Path, ...], as_json: bool
) -> None:
    """Show the diff of every distinct file and the restart, without writing anything."""
    nowhere = Path(os.devnull)  # nothing is kept of a look: it needs no room on any disk
    job = read_job(session_file, inventory, patches, nowhere)
    with LiveProgress([h.name for h in job.hosts]) as progress:
        session_id = new_session_id(job.session.name, datetime.now())
        run = Run(job, progress, RunDir(nowhere), session_id)
        plan = run.look()
    lives = {
        m.name: (shown(m.found.original), shown(run.life(m)))
        for m in run.fleet.members
        if m.found is not None
    }
    notes = run.list_notes(plan)
    if as_json:
        facts = plan_facts(plan) | {
            "restart": {h: {"before": a, "after": b} for h, (a, b) in lives.items()},
            "notes": notes,
        }
        click.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    _show(plan, lives, notes)


def _show(
    plan: Plan, lives: dict[str, tuple[tuple[str, ...], tuple[str, ...]]], notes: Sequence[str]
) -> None:
    for file in plan.files:
        hosts = fold_hosts(file.hosts)
        if file.before_sha256 is None:
            click.echo(f"# {hosts}: creates {file.file} ({len(file.after)} bytes)")
            continue
        click.echo(
            f"# {hosts}: {file.file} ({file.before_sha256[:12]} -> {file.after_sha256[:12]})"
        )
        click.echo(file.diff, nl=False)
    for host, (before, after) in lives.items():
        click.echo(f"# {host}: the server as it is")
        click.echo("\n".join(f"- {line}" for line in before))
        click.echo(f"# {host}: its debug life")
        click.echo("\n".join(f"+ {line}" for line in after))
    for note in notes:
        click.echo(f"note: {note}", err=True)
    for warning in plan.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo("nothing was written on any host", err=True)
