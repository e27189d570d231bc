"""The stages of a start, as the source of each release writes them into its log."""

from __future__ import annotations

import zipfile

import pytest

from orchestrator.servers.progress import find_progress
from tests.releases.wheels import RELEASES, find_wheel

pytestmark = pytest.mark.releases

# What every release tells on its way, whatever the model and the device.
STAGES = {
    "waiting for all ranks",
    "all ranks have met",
    "loading weights",
    "weights loaded",
    "memory pool allocated",
    "graphs captured",
    "warmed up",
}


@pytest.mark.parametrize("version", RELEASES)
def test_every_stage_is_read_from_what_a_release_writes(version: str) -> None:
    """A message that a release has renamed would be missed in silence."""
    wheel = find_wheel(version)
    assert wheel is not None
    found = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("sglang/srt/") and name.endswith(".py"):
                lines = archive.read(name).decode().splitlines()
                found |= {find_progress([line]) for line in lines if '"' in line}
    assert STAGES - found == set()
    assert any(text.startswith("capturing graphs") for text in found)
