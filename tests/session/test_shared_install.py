"""A server on two hosts whose install is one and the same directory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.session.command import call
from tests.session.world import Project, World


@pytest.fixture
def one_install(world: World) -> Iterator[World]:
    """The first host's install is mounted over the second one's, as NFS would have it."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a bind mount stands in for a shared file system")
    first, second = (str(host.site) for host in world.cluster.hosts)
    subprocess.run(["mount", "--bind", first, second], check=True)
    try:
        yield world
    finally:
        subprocess.run(["umount", "-l", second], check=True)


def test_a_session_on_a_shared_install(
    one_install: World, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patched once and reverted once; the answer is that of all workers of both hosts."""
    session = project.write()
    result = call(monkeypatch, "run", session, "--runs", tmp_path / "runs")
    assert result.code == 1, result.err
    note = "demo-[0-1]: one and the same install: it is patched once and reverted once"
    assert result.stages.count(f"note: {note}") == 1, result.stages
    assert "demo-0 TP0, TP1; demo-1 TP2, TP3  fails 2x" in result.out
    first, second = one_install.cluster.hosts
    names = [name for _, _, files in os.walk(first.site) for name in files]
    assert not [name for name in names if "sgldbg" in name]
    one_install.assert_nothing_left()
    subprocess.run(["umount", "-l", str(second.site)], check=True)
    one_install.assert_as_before()
    subprocess.run(["mount", "--bind", str(first.site), str(second.site)], check=True)
