"""Pytest fixtures around `tests.sshd`; a conftest takes them in by `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sshd import Sshd

StartSshd = Callable[..., Sshd]


@pytest.fixture
def start_sshd(tmp_path: Path) -> Iterator[StartSshd]:
    """Start servers with the arguments of `Sshd`; they are stopped when the test ends."""
    started: list[Sshd] = []

    def start(**given: Any) -> Sshd:
        sshd = Sshd(tmp_path / f"sshd{len(started)}", **given)
        started.append(sshd)
        sshd.start()
        return sshd

    yield start
    for sshd in started:
        sshd.stop()


@pytest.fixture
def sshd(start_sshd: StartSshd) -> Sshd:
    """One started server that plays the host `h0`."""
    return start_sshd()
