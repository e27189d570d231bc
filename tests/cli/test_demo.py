"""`sgldbg demo` where the cluster cannot be set up."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from orchestrator.cli.app import main
from orchestrator.demo import cluster
from orchestrator.demo.layout import DemoError


def test_a_cluster_that_does_not_start_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine's fault is told as such, without a trace file."""

    def refuse(*asked: Any) -> NoReturn:
        raise DemoError("no free ports between 20000 and 30000")

    monkeypatch.setattr(cluster, "open_cluster", refuse)
    assert main(["demo"]) == 6
    assert capsys.readouterr().err == (
        "a cluster of 2 hosts and its server start ...\n"
        "error: the demonstration could not begin: no free ports between 20000 and 30000\n"
    )
