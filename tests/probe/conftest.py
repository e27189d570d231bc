"""Fixtures of the probe's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.workshop import Workshop


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """A package with a probe in it; no table yet."""
    return Workshop(tmp_path)
