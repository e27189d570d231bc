"""Fixtures of the transport tests: real sshd, and a home of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures_sshd import sshd, start_sshd

__all__ = ["sshd", "start_sshd"]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing under the real home is read or written, and no agent of the user's is asked."""
    home = tmp_path / "controller"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SGLDBG_STATE", raising=False)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
