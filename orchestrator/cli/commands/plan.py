"""`sgldbg plan`: connect, look, and show exactly what `run` would do; writes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from orchestrator.cli.job import read_job
from orchestrator.cli.live import LiveProgress
from orchestrator.cli.options import json_option, project_options, session_argument
from orchestrator.cli.render import say, show_json, show_line
from orchestrator.diagnostics import fold_hosts
from orchestrator.model.plan import Plan
from orchestrator.servers.base import shown
from orchestrator.session.job import new_session_id
from orchestrator.session.kept.rundir import RunDir, plan_facts
from orchestrator.session.run import Run


@click.command("plan")
@session_argument
@project_options
@json_option
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
        m.name: (shown(m.found.original), shown(job.life(m)))
        for m in run.fleet.members
        if m.found is not None
    }
    notes = run.list_notes(plan)
    if as_json:
        facts = plan_facts(plan) | {
            "patches": {p.name: p.path for p in job.patches},
            "restart": {h: {"before": a, "after": b} for h, (a, b) in lives.items()},
            "notes": notes,
        }
        show_json(facts)
        return
    for patch in job.patches:
        show_line(f"# patch {patch.name}: {patch.path}")
    _show(plan, lives, notes)


def _show(
    plan: Plan, lives: dict[str, tuple[tuple[str, ...], tuple[str, ...]]], notes: Sequence[str]
) -> None:
    for file in plan.files:
        hosts = fold_hosts(file.hosts)
        if file.before_sha256 is None:
            show_line(f"# {hosts}: creates {file.file} ({len(file.after)} bytes)")
            continue
        show_line(f"# {hosts}: {file.file} ({file.before_sha256[:12]} -> {file.after_sha256[:12]})")
        click.echo(file.diff, nl=False)
    for host, (before, after) in lives.items():
        click.echo(f"# {host}: the server as it is")
        click.echo("\n".join(f"- {line}" for line in before))
        click.echo(f"# {host}: its debug life")
        click.echo("\n".join(f"+ {line}" for line in after))
    for note in notes:
        say(f"note: {note}")
    for warning in plan.warnings:
        say(f"warning: {warning}")
    click.echo("nothing was written on any host", err=True)
