"""A host with an install, as the transaction's tests see it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.onhost.transaction.lost import lose_in_debug_life
from tests.onhost.transaction.place import HOST, LEASE_S, Place


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


@pytest.fixture
def open_place(monkeypatch):
    """A host whose install every user can reach; pytest's own directories are closed to others."""
    if os.geteuid() != 0:
        pytest.skip("needs root: another user")
    top = Path(tempfile.mkdtemp(prefix="sgldbg-users-"))
    monkeypatch.setattr("tempfile.tempdir", str(top / "tmp"))
    (top / "tmp").mkdir()
    for folder in (top, top / "tmp"):
        folder.chmod(0o777)
    place = Place(top)
    (place.root / "sglang/srt/layers.py").chmod(0o644)
    place.before = place.tree()
    yield place
    place.end_processes()
    shutil.rmtree(top)


@pytest.fixture
def held(place):
    """A session that another process has taken to its debug life and keeps renewing."""
    main = place.start_server()
    words = ["-m", "tests.onhost.transaction.holder", place.top, LEASE_S, main.pid, main.start_time]
    with subprocess.Popen(
        [sys.executable, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == f"patched s1 {HOST}\n".encode()
        yield holder
        holder.kill()


@pytest.fixture
def lost(place):
    """A place whose session has lost its directory in its debug life, and its guard."""
    lose_in_debug_life(place)
    return place
