"""The cluster of the demonstration: what it lays out, and that it leaves nothing."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.demo import launch, layout
from orchestrator.demo.cluster import Cluster, open_cluster
from orchestrator.demo.layout import DemoError
from orchestrator.demo.processes import read_processes
from orchestrator.model.inventory import LaunchCommand
from orchestrator.servers.life import for_host
from orchestrator.spec.project import load_project
from tests.demo.poll import wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for the tests that only look."""
    with open_cluster(tmp_path_factory.mktemp("demo") / "work") as opened:
        yield opened


def test_the_server_runs_on_both_hosts(cluster: Cluster) -> None:
    """Each host has a main process whose environment, not its command line, names the install."""
    assert cluster.generate("The capital of France is")["meta_info"]["spec_verify_ct"] == 15
    facts = cluster.server_facts()
    assert list(facts) == ["demo-0", "demo-1"]
    for rank, host in enumerate(cluster.hosts):
        found = facts[host.name]
        assert found is not None
        assert found.argv[1:3] == ("-m", "sglang.launch_server")
        assert found.argv[found.argv.index("--node-rank") + 1] == str(rank)
        assert f"PYTHONPATH={host.site}" in found.environ
        assert str(host.site) not in " ".join(found.argv)
        assert found.cwd == str(host.home)


def test_a_snapshot_sees_every_change(cluster: Cluster) -> None:
    """Two looks at the same files are equal; other bytes and another file are not."""
    before = cluster.snapshot()
    assert cluster.snapshot() == before
    assert "demo-1:sglang/srt/models/llama_eagle3.py" in before
    assert any(name.endswith(".pyc") for name in before)
    target = cluster.hosts[1].site / "sglang/srt/__init__.py"
    twin = target.with_name("twin")
    twin.write_bytes(target.read_bytes())
    os.utime(twin, ns=(0, before["demo-1:sglang/srt/__init__.py"].mtime_ns))
    twin.replace(target)
    changed = {name for name, fact in cluster.snapshot().items() if fact != before.get(name)}
    assert changed == {"demo-1:sglang/srt/__init__.py"}


def test_the_install_can_be_told_pristine(tmp_path: Path) -> None:
    """The metadata's checksums are those of a wheel: all files, their bytes, their sizes."""
    layout.install_miniature(tmp_path)
    info = tmp_path / "sglang-0.5.16.dist-info"
    assert "\nVersion: 0.5.16\n" in (info / "METADATA").read_text()
    listed = {}
    for line in (info / "RECORD").read_text().splitlines():
        name, digest, size = line.split(",")
        listed[name] = (digest, size)
    assert listed.pop("sglang-0.5.16.dist-info/RECORD") == ("", "")
    there = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert there == {*listed, "sglang-0.5.16.dist-info/RECORD"}
    for name, (digest, size) in listed.items():
        data = (tmp_path / name).read_bytes()
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert (digest, size) == (f"sha256={sha256}", str(len(data)))


def test_the_files_are_right(cluster: Cluster) -> None:
    """What is written for the user passes the project's own checks."""
    project = load_project(cluster.session)
    assert project.session.server == "miniature"
    assert [patch.name for patch in project.patches] == ["eagle3-draft-input"]
    server = project.inventory.servers["miniature"]
    assert (server.url, server.hosts) == (cluster.url, ("demo-0", "demo-1"))
    assert isinstance(server.launch, LaunchCommand)
    for rank, name in enumerate(server.hosts):
        facts = cluster.server_facts()[name]
        life = for_host(server.launch, project.inventory.hosts[name], rank, 2)
        assert facts is not None
        assert life.argv == facts.argv
        assert f"PYTHONPATH={life.env_set['PYTHONPATH']}" in facts.environ
    host = project.inventory.hosts["demo-1"]
    assert (host.address, host.user) == ("127.0.0.1", "demo")
    assert host.identity_file is not None
    assert os.stat(host.identity_file).st_mode & 0o777 == 0o600
    known = Path(host.ssh_options["UserKnownHostsFile"]).read_text()
    assert f"[127.0.0.1]:{host.port} ssh-ed25519 " in known


def test_nothing_is_left(tmp_path: Path) -> None:
    """Closing ends processes and threads, the ones that others started too, and the folder."""
    before = set(threading.enumerate())
    with open_cluster(tmp_path / "work", hosts=1, algorithm="EAGLE3") as opened:
        home = opened.hosts[0].home
        facts = opened.server_facts()["demo-0"]
        assert facts is not None
        opened.children[0].terminate()
        opened.children[0].wait()
        assert opened.server_facts() == {"demo-0": None}
        environ = dict(pair.split("=", 1) for pair in facts.environ)
        again = subprocess.Popen(facts.argv, cwd=facts.cwd, env=environ, start_new_session=True)
        wait_for(lambda: opened.server_facts()["demo-0"] == facts, "the second life")
    assert again.wait(30) in (0, -signal.SIGTERM)  # it may not have been ready yet
    assert not read_processes([home])
    assert not (tmp_path / "work").exists()
    assert set(threading.enumerate()) == before


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    """An empty folder is used and kept; one with something in it is not touched."""
    (tmp_path / "work").mkdir()
    with open_cluster(tmp_path / "work", hosts=1):
        pass
    assert (tmp_path / "work" / "inventory.yaml").exists()
    with pytest.raises(DemoError) as error:
        open_cluster(tmp_path / "work")
    assert str(error.value) == f"{tmp_path / 'work'} is there and is not an empty directory"


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"algorithm": "NEXTN"}, "the miniature knows EAGLE and EAGLE3, not NEXTN"),
        ({"hosts": 10}, "a cluster has 1 to 9 hosts, not 10"),
    ],
)
def test_what_cannot_be_had(tmp_path: Path, asked: dict[str, Any], text: str) -> None:
    """Nothing is made for a cluster that cannot be."""
    with pytest.raises(DemoError) as error:
        open_cluster(tmp_path / "work", **asked)
    assert str(error.value) == text
    assert not (tmp_path / "work").exists()


def test_a_port_that_somebody_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is lost between choosing and listening costs another attempt, no more."""
    find = launch.find_free_decade
    lost = find(1)
    with socket.create_server(("127.0.0.1", lost * 10 + 9)):
        answers = iter([lost])
        monkeypatch.setattr(launch, "find_free_decade", lambda n: next(answers, None) or find(n))
        with open_cluster(tmp_path / "work", hosts=1) as opened:
            assert f":{lost}0" not in opened.url
            assert "Address already in use" in opened.hosts[0].stderr.read_text()


def test_a_server_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is in the error, and nothing is left."""
    install = layout.install_miniature

    def broken(site: Path) -> None:
        install(site)
        (site / "sglang/srt/tensor.py").write_text("raise ImportError('no tensors today')\n")

    monkeypatch.setattr(layout, "install_miniature", broken)
    with pytest.raises(DemoError) as error:
        open_cluster(tmp_path / "work", hosts=1)
    assert re.fullmatch(
        r"the miniature server ended while it was starting\nTraceback [\s\S]*"
        r"\nImportError: no tensors today",
        str(error.value),
    )
    assert not (tmp_path / "work").exists()
