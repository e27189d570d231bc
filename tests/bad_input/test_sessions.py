"""Sessions that fail after they began on the hosts: what is said, and that all is as before."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.demo.cluster import Cluster, open_cluster
from orchestrator.model.plan import Plan
from orchestrator.session.run import Run as SessionRun
from tests.bad_input.conftest import Run
from tests.bad_input.project import Project, check

MODEL = Path("sglang") / "srt" / "models" / "llama_eagle3.py"
TEXT = "The capital of France is"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts, one of which refuses."""
    with open_cluster(tmp_path_factory.mktemp("pair") / "cluster") as opened:
        yield opened


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One host, so that it is not chance which one fails first."""
    with open_cluster(tmp_path_factory.mktemp("single") / "cluster", hosts=1) as opened:
        yield opened


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """A project on the cluster of the parameter, which is as before when the test is over."""
    cluster: Cluster = request.getfixturevalue(request.param)
    before = _state(cluster)
    yield Project.create(tmp_path / "project", cluster)
    assert _state(cluster) == before
    left = [p for host in cluster.hosts for p in host.home.rglob("sessions/*/*")]
    assert left == []


on_pair = pytest.mark.parametrize("project", ["pair"], indirect=True)
on_single = pytest.mark.parametrize("project", ["single"], indirect=True)


def _state(cluster: Cluster) -> tuple[object, ...]:
    lives = {
        name: facts and (facts.argv, facts.environ, facts.cwd)
        for name, facts in cluster.server_facts().items()
    }
    return cluster.snapshot(), lives, cluster.generate(TEXT)["output_ids"]


@contextmanager
def mounted(place: Path, *options: str) -> Iterator[None]:
    """Something mounted over a directory; where that is not allowed the test is skipped."""
    done = subprocess.run(
        ["mount", *options, str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@on_pair
def test_file_changed_since_the_plan(
    project: Project, sgldbg: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody edits a file between plan and staging: no host is changed, no server stopped."""
    path = project.cluster.hosts[1].site / MODEL
    data, stat = path.read_bytes(), path.stat()
    stage = SessionRun._stage

    def edit_then_stage(run: SessionRun, plan: Plan) -> None:
        path.write_bytes(data + b"# mine\n")
        stage(run, plan)

    monkeypatch.setattr(SessionRun, "_stage", edit_then_stage)
    pids = _pids(project)

    ran = sgldbg(project, "run", "session.yaml")

    assert path.read_bytes() == data + b"# mine\n"
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    check(ran, "file-changed", 5)
    assert _pids(project) == pids


def _pids(project: Project) -> list[int]:
    """The processes that the cluster was started with, as long as they run."""
    return [child.pid for child in project.cluster.children if child.poll() is None]


@on_pair
def test_install_is_read_only(project: Project, sgldbg: Run) -> None:
    """An install that nobody can write to is refused while the server still runs."""
    package = project.cluster.hosts[1].site / "sglang"
    pids = _pids(project)
    with mounted(package, "--bind", str(package)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(package)], check=True)
        ran = sgldbg(project, "run", "session.yaml")
    check(ran, "install-read-only", 5)
    assert _pids(project) == pids


@on_pair
def test_disk_of_the_install_is_full(project: Project, sgldbg: Run) -> None:
    """No room for the staged file: refused while the server still runs, nothing left behind."""
    models = project.cluster.hosts[0].site / MODEL.parent
    copy = project.folder / "models"
    shutil.copytree(models, copy)
    pids = _pids(project)
    with mounted(models, "-t", "tmpfs", "-o", "size=64k", "tmpfs"):
        shutil.copytree(copy, models, dirs_exist_ok=True)
        _fill(models)
        before = sorted(models.rglob("*"))
        ran = sgldbg(project, "run", "session.yaml")
        assert sorted(models.rglob("*")) == before
    check(ran, "install-disk-full", 5)
    assert _pids(project) == pids


def _fill(folder: Path) -> None:
    with open(folder / "ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"x" * 512)
        except OSError:
            return


@on_pair
def test_disk_of_the_state_is_full(project: Project, sgldbg: Run) -> None:
    """No room for the agent: the host says so, and nothing began anywhere."""
    state = project.cluster.hosts[1].home / ".local" / "state" / "sgldbg"
    state.mkdir(parents=True, mode=0o700, exist_ok=True)
    pids = _pids(project)
    with mounted(state, "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs"):
        ran = sgldbg(project, "run", "session.yaml")
    check(ran, "state-disk-full", 5)
    assert _pids(project) == pids


@on_single
def test_disk_of_the_runs_is_full(project: Project, sgldbg: Run) -> None:
    """No room for the plan on this machine: said of the folder, and no session began anywhere."""
    runs = project.folder / "runs"
    runs.mkdir()
    pids = _pids(project)
    with mounted(runs, "-t", "tmpfs", "-o", "size=16k", "tmpfs"):
        _fill(runs)
        ran = sgldbg(project, "run", "session.yaml")
    check(ran, "runs-disk-full", 6)
    assert _pids(project) == pids


@on_single
def test_server_dies_at_start(project: Project, sgldbg: Run) -> None:
    """The patched server does not start: its last lines are shown, the original runs again."""
    project.replace("session.yaml", "[--disable", "[--no-such-flag, --disable")
    ran = sgldbg(project, "run", "session.yaml")
    check(ran, "dies-at-start", 6)


@on_single
def test_server_never_ready(project: Project, sgldbg: Run) -> None:
    """The patched server waits for a node that never comes: it is given up and undone."""
    project.replace("session.yaml", "[--disable", "[--nnodes, '2', --disable")
    project.replace("inventory.yaml", "timeout: 30s", "timeout: 6s")
    ran = sgldbg(project, "run", "session.yaml")
    check(ran, "never-ready", 6)


@on_single
def test_original_not_back(project: Project, sgldbg: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where even the original does not get ready the user is told of every host what is left."""
    project.replace("inventory.yaml", "timeout: 30s", "timeout: 4s")
    stage = SessionRun._stage

    def move_then_stage(run: SessionRun, plan: Plan) -> None:
        # A server that does not answer there while it still runs is refused before it is stopped.
        server = run.job.server
        moved = replace(server, ready=replace(server.ready, path="/nosuch"))
        book = replace(run.job.inventory, servers={server.name: moved})
        run.job = replace(run.job, inventory=book)
        stage(run, plan)

    monkeypatch.setattr(SessionRun, "_stage", move_then_stage)
    ran = sgldbg(project, "run", "session.yaml")
    check(ran, "original-not-back", 7)
    project.replace("inventory.yaml", "timeout: 4s", "timeout: 30s")
    assert sgldbg(project, "revert", "--all").code == 0
