"""`sgldbg apply`: patch, restart and arm, and leave the hosts to their guards."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.commands.run import carry_out
from orchestrator.cli.job import read_job
from orchestrator.cli.options import (
    UserPath,
    json_option,
    lease_length,
    project_options,
    session_argument,
)
from orchestrator.cli.render import say

# As long as somebody who works by hand needs, and short enough that a forgotten one goes away.
_LEASE_S = 3600.0


@click.command("apply")
@session_argument
@project_options
@click.option("--lease", type=lease_length, help="When every host reverts by itself; default 1h.")
@click.option("--runs", type=UserPath(), default=Path("runs"), help="Where the plan is kept.")
@json_option
def command(
    session_file: Path,
    inventory: Path | None,
    patches: tuple[Path, ...],
    lease: float | None,
    runs: Path,
    as_json: bool,
) -> None:
    """Do the first half of `run` and leave the patched server running.

    `sgldbg revert SESSION` puts everything back; `sgldbg keep SESSION` ends the lease. Without
    either, every host reverts by itself when the lease is over.
    """
    lease_s = _LEASE_S if lease is None else lease
    job = read_job(session_file, inventory, patches, runs)
    ending = carry_out(job, lambda run: run.apply(lease_s), as_json=as_json)
    if ending.applied:
        say(
            f"every host reverts by itself in {lease_s:g} s; `sgldbg revert SESSION` does it now,"
            " `sgldbg keep SESSION` never"
        )
    raise SystemExit(int(ending.exit_code))
