"""Clusters that the tests of a worker share, each handed on only as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.demo.cluster import Cluster, open_cluster
from tests.session.world import Project, World

MakeWorld = Callable[[int], World]


class _Shared:
    """One cluster per number of hosts; one that a test broke is replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._open: dict[int, tuple[Cluster, World]] = {}

    def take(self, hosts: int) -> World:
        """A cluster that is whole."""
        if hosts in self._open:
            cluster, world = self._open[hosts]
            if world.is_whole():
                world.forget_ended()
                return world
            del self._open[hosts]
            cluster.close()
        self._count += 1
        cluster = open_cluster(self._folder / f"cluster{self._count}", hosts)
        self._open[hosts] = (cluster, World(cluster))
        return self._open[hosts][1]

    def close(self) -> None:
        for cluster, _ in self._open.values():
            cluster.close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Shared]:
    """The worker's clusters."""
    made = _Shared(tmp_path_factory.mktemp("clusters"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's own files go to the test's folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "state"))


@pytest.fixture
def world(shared: _Shared) -> World:
    """Two hosts with one server over both."""
    return shared.take(2)


@pytest.fixture
def single(shared: _Shared) -> World:
    """One host: quicker, where several prove nothing more."""
    return shared.take(1)


@pytest.fixture
def project(tmp_path: Path, world: World) -> Project:
    """The files for `world`, to be varied."""
    return Project(tmp_path / "project", world.cluster)


@pytest.fixture
def small(tmp_path: Path, single: World) -> Project:
    """The files for `single`, to be varied."""
    return Project(tmp_path / "project", single.cluster)
