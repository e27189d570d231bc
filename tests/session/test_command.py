"""`launch: command` where the server does not run: started for the session, stopped after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.demo import processes
from orchestrator.demo.cluster import open_cluster
from tests.session.command import call
from tests.session.world import Project


def test_a_server_that_did_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers the question and is gone again; files are as they were."""
    with open_cluster(tmp_path / "cluster", 1) as cluster:
        homes = [host.home for host in cluster.hosts]
        processes.end_all(homes)
        before = cluster.snapshot()
        project = Project(tmp_path / "project", cluster)
        result = call(monkeypatch, "run", project.write(), "--runs", tmp_path / "runs")
        assert result.code == 1, result.err
        assert "fused fails" in result.out
        assert cluster.server_facts() == {"demo-0": None}
        assert cluster.snapshot() == before
        assert "restore done (was not running before)" in result.stages
