"""A host with an install, as the transaction's tests see it."""

from __future__ import annotations

import pytest

from tests.onhost.transaction.place import Place


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A state directory and an install of its own; every process of it is gone afterwards."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (tmp_path / "tmp").mkdir()
    made = Place(tmp_path)
    yield made
    made.end_processes()
