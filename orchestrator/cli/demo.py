"""`sgldbg demo`: the whole job on an embedded cluster, and the proof that it left no trace."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.job import open_run, read_job
from orchestrator.cli.live import LiveProgress
from orchestrator.cli.options import json_option
from orchestrator.cli.run import show_ending
from orchestrator.errors import SessionError
from orchestrator.model.outcome import ExitCode

if TYPE_CHECKING:
    from orchestrator.demo.cluster import Cluster
    from orchestrator.session.ending import Ending

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
    with tempfile.TemporaryDirectory(prefix="sgldbg-demo-") as scratch:
        click.echo(f"a cluster of {hosts} hosts and its server start ...", err=True)
        with _open_cluster(Path(scratch) / "cluster", hosts, algorithm) as cluster:
            before = _facts(cluster)
            job = read_job(cluster.session, cluster.inventory, (), Path(scratch) / "runs")
            with LiveProgress([h.name for h in job.hosts]) as progress:
                ending = open_run(job, progress).execute()
            after = _facts(cluster)
            left = sorted(str(p) for host in cluster.hosts for p in host.home.rglob("sessions/*"))
    differences = [name for name in before if before[name] != after[name]]
    differences += [f"left behind: {path}" for path in left]
    # The run's directory is gone with the cluster.
    show_ending(replace(ending, run_dir=None), as_json=as_json)
    if not as_json:
        _show_proof(len(before["files"]), differences)
    if not _as_intended(ending, algorithm) or differences:
        raise SystemExit(int(ExitCode.NOT_RESTORED if differences else ExitCode.SESSION))


def _open_cluster(folder: Path, hosts: int, algorithm: str) -> Cluster:
    from orchestrator.demo.cluster import open_cluster
    from orchestrator.demo.layout import DemoError

    try:
        return open_cluster(folder, hosts, algorithm)
    except DemoError as error:
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
        "tokens": cluster.generate(_TEXT)["output_ids"],
    }


def _as_intended(ending: Ending, algorithm: str) -> bool:
    wanted = ExitCode.NOT_AS_EXPECTED if algorithm == "EAGLE" else ExitCode.DONE
    return ending.exit_code == wanted


def _show_proof(files: int, differences: list[str]) -> None:
    if differences:
        for text in differences:
            click.echo(f"not as before: {text}", err=True)
        return
    click.echo(
        f"\nproved: {files} files have the bytes, inodes and times they had; the server runs with"
        "\nthe command line, environment and directory it had, and answers with the same tokens"
    )
