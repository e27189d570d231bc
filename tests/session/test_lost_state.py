"""A host whose state directory goes away in the middle of a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.command import call, once
from tests.session.world import Project, World


def test_a_lost_journal_is_never_taken_for_a_revert(
    single: World, small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 7 and the state unknown, not "as they were"; with the directory back it is undone."""
    small.session["lease"] = "5s"
    state = single.cluster.hosts[0].home / ".local" / "state" / "sgldbg"
    away = tmp_path / "away"

    lose = once(("demo-0", "arm", "done"), lambda: state.rename(away))
    result = call(monkeypatch, "run", small.write(), "--runs", tmp_path / "runs", hook=lose)

    away.rename(state) if not state.exists() else (away / "sessions").rename(state / "sessions")
    ended = call(monkeypatch, "revert", "--all", "--inventory", small.folder / "inventory.yaml")
    assert result.code == 7, result.err
    assert "demo-0: state of the files is unknown, state of the server is unknown" in result.err, (
        result.err
    )
    assert ended.code == 0, ended.err
    single.assert_as_before()
