"""`sgldbg demo`: the whole job on an embedded cluster, and the proof that it left no trace."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.run import show_ending
from orchestrator.cli.interrupts import hold_signals, settle
from orchestrator.cli.job import open_run, read_job
from orchestrator.cli.live import LiveProgress
from orchestrator.cli.options import json_option
from orchestrator.errors import SessionError
from orchestrator.model.outcome import ExitCode

if TYPE_CHECKING:
    from orchestrator.demo.cluster import Cluster
    from orchestrator.session.kept.ending import Ending

_TEXT = "The capital of France is"


@click.command("demo")
@click.option(
    "--algorithm",
    type=click.Choice(["EAGLE", "EAGLE3"]),
    default="EAGLE",
    show_default=True,
    help="EAGLE has the fault that the session finds, EAGLE3 does not.",
)
@click.option("--hosts", type=click.IntRange(1, 4), default=2, show_default=True)
@json_option
def command(algorithm: str, hosts: int, as_json: bool) -> None:
    """Start two SSH hosts and a miniature server, debug it, revert, and prove it.

    Needs no root, no SSH server, no GPU and no network. Exit code 0 means that the demonstration
    went as intended: the fault was found (or, with EAGLE3, its absence shown) and every file and
    the server are as they were.
    """
    with _open_folder() as scratch:
        noun = "host" if hosts == 1 else "hosts"
        click.echo(f"a cluster of {hosts} {noun} and its server start ...", err=True)
        with _open_cluster(scratch / "cluster", hosts, algorithm) as cluster:
            before = _facts(cluster)
            if before["tokens"] is None:
                raise SessionError("the demonstration could not begin: its server does not answer")
            job = read_job(cluster.session, cluster.inventory, (), scratch / "runs")
            with LiveProgress([h.name for h in job.hosts]) as progress:
                run = open_run(job, progress)
                hold_signals()  # until the cluster is gone as well
                ending = run.execute()
            after = _facts(cluster)
            left = sorted(str(p) for host in cluster.hosts for p in host.home.rglob("sessions/*"))
    differences = [name for name in before if before[name] != after[name]]
    differences += [f"left behind: {path}" for path in left]
    code = _find_code(ending, algorithm, differences)
    settle(int(code))
    # The run's directory is gone with the cluster.
    show_ending(replace(ending, run_dir=None), as_json=as_json)
    if not as_json:
        _show_proof(len(before["files"]), differences)
    raise SystemExit(int(code))


@contextmanager
def _open_folder() -> Iterator[Path]:
    """Where all of it lies; what killed demonstrations left beside it is removed first."""
    from orchestrator.demo.leftovers import own_prefix, remove_leftovers

    try:
        parent = Path(tempfile.gettempdir())
        for path in remove_leftovers(parent):
            click.echo(f"removed what a demonstration that was killed had left: {path}", err=True)
        folder = tempfile.TemporaryDirectory(prefix=own_prefix())
    except OSError as error:
        raise SessionError(f"the demonstration could not begin: {error}") from error
    with folder as scratch:
        yield Path(scratch)


def _open_cluster(folder: Path, hosts: int, algorithm: str) -> Cluster:
    from orchestrator.demo.cluster import open_cluster
    from orchestrator.demo.layout import DemoError

    try:
        return open_cluster(folder, hosts, algorithm)
    except (DemoError, OSError) as error:
        raise SessionError(f"the demonstration could not begin: {error}") from error


def _facts(cluster: Cluster) -> dict[str, Any]:
    """What must be equal before and after."""
    servers = {
        host: None if facts is None else (facts.argv, facts.environ, facts.cwd)
        for host, facts in cluster.server_facts().items()
    }
    return {
        "files": cluster.snapshot(),
        "servers": servers,
        "tokens": _tokens(cluster),
    }


def _tokens(cluster: Cluster) -> list[int] | None:
    """What the server answers; nothing where it does not, which is other than before."""
    try:
        return list(cluster.generate(_TEXT)["output_ids"])
    except (OSError, HTTPException):
        return None


def _find_code(ending: Ending, algorithm: str, differences: list[str]) -> ExitCode:
    """Done where the fault was found, or its absence shown, and nothing is other than it was."""
    if differences:
        return ExitCode.NOT_RESTORED
    if ending.exit_code in (ExitCode.INTERRUPTED, ExitCode.OUR_BUG):
        return ending.exit_code
    wanted = ExitCode.NOT_AS_EXPECTED if algorithm == "EAGLE" else ExitCode.DONE
    return ExitCode.DONE if ending.exit_code == wanted else ExitCode.SESSION


def _show_proof(files: int, differences: list[str]) -> None:
    if differences:
        for text in differences:
            click.echo(f"not as before: {text}", err=True)
        return
    click.echo(
        f"\nproved: {files} files have the bytes, inodes and times they had; the server runs with"
        "\nthe command line, environment and directory it had, and answers with the same tokens"
    )
