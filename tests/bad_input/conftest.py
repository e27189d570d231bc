"""Clusters for bad input: one that nothing may change, and the way to run a command as a user."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.cli.app import main
from orchestrator.demo.cluster import Cluster, open_cluster
from tests.bad_input.project import Project, Ran

Run = Callable[..., Ran]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts and a server for tests that change nothing: the same processes run at the end."""
    with open_cluster(tmp_path_factory.mktemp("bad") / "cluster") as opened:
        before = opened.snapshot(), opened.server_facts()
        yield opened
        assert (opened.snapshot(), opened.server_facts()) == before


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path) -> Project:
    """A fresh project on the shared cluster."""
    return Project.create(tmp_path / "project", cluster)


@pytest.fixture
def sgldbg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs a command line in a project's folder, with nothing of the real home in sight."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    def run(project: Project, *words: str) -> Ran:
        before = os.getcwd()
        os.chdir(project.folder)
        try:
            code = main(words)
        finally:
            os.chdir(before)
        return Ran(int(code), project.normalise(capsys.readouterr().err))

    return run
