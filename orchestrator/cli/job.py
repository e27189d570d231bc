"""Turns what a command line names into a job for the session."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import click

from orchestrator.session.hosts.fleet import Progress
from orchestrator.session.job import Job, new_session_id
from orchestrator.session.kept.rundir import RunDir, unwritable
from orchestrator.session.kept.timeline import Timeline
from orchestrator.session.probe_runtime import runtime_source
from orchestrator.session.run import Run
from orchestrator.spec.project import load_project
from orchestrator.transport.routes import open_transport
from orchestrator.userfile import is_full, reason_of


def read_job(
    session_file: Path,
    inventory: Path | None,
    patch_dirs: Sequence[Path],
    runs_dir: Path,
    lease_s: float | None = None,
) -> Job:
    """Read and check every file that the session names; raises `FileErrors`."""
    project = load_project(session_file, inventory, patch_dirs)
    session = project.session
    if lease_s is not None:
        session = replace(session, lease_s=lease_s)
    return Job(
        inventory=project.inventory,
        session=session,
        patches=project.patches,
        transport=open_transport(),
        runtime_source=runtime_source(),
        holder=f"{getpass.getuser()}@{socket.gethostname()}",
        runs_dir=runs_dir,
    )


def open_run(job: Job, progress: Progress) -> Run:
    """A run with its own id, directory and timeline.

    A folder that cannot be made is an error of usage; a full disk is none, and raises `DiskError`.
    """
    now = datetime.now()
    session_id = new_session_id(job.session.name, now)
    try:
        run_dir = RunDir.create(job.runs_dir, job.session.name, f"{now:%Y%m%d-%H%M%S}")
    except OSError as error:
        if is_full(error):
            raise unwritable(job.runs_dir, error) from error
        raise click.UsageError(
            f"the run's directory cannot be made in {job.runs_dir}: {reason_of(error)}"
        ) from None
    return Run(job, Timeline(run_dir, progress), run_dir, session_id)
