"""The main job over OpenSSH: two hosts, an adopted server, editable git checkouts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.demo import launch, processes
from orchestrator.demo.layout import PATCH, read_patch_source, session_text
from tests.session.checkout import make_checkout
from tests.session.command import call
from tests.session.world import wait_for
from tests.sshd import Sshd

NAMES = ("real-0", "real-1")
# Its own name: `adopt` takes any server of a package, and other tests run some of `sglang`.
PACKAGE = "sglang_checkout"
MODULE = f"{PACKAGE}.launch_server"


class Site:
    """Two hosts behind a real sshd, a checkout on each, one server over both, started by hand."""

    def __init__(self, folder: Path, sshd: Sshd) -> None:
        self.folder = folder
        self.sshd = sshd
        self.homes = [sshd.home(name) for name in NAMES]
        self.checkouts = [make_checkout(folder / name, PACKAGE) for name in NAMES]
        self._decade = launch.find_free_decade(len(NAMES))
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """Where its first host answers."""
        return f"http://127.0.0.1:{self._decade}0"

    def start(self) -> None:
        """`nohup python -m ... >> server.out 2>> server.err &` on both hosts."""
        command = launch.server_command(self._decade, len(NAMES), "EAGLE")
        for rank, (home, checkout) in enumerate(zip(self.homes, self.checkouts, strict=True)):
            argv = [str(checkout.python), "-m", MODULE, *launch.fill(command, rank)[3:]]
            with open(home / "server.out", "ab") as out, open(home / "server.err", "ab") as err:
                child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    cwd=home,
                    env={"HOME": str(home), "PATH": "/usr/bin:/bin", "SECRET_TOKEN": "s3cret"},
                    start_new_session=True,
                )
            self._children.append(child)
        wait_for(self.is_ready, "the server")

    def is_ready(self) -> bool:
        """Whether it serves."""
        try:
            return launch.request(self._decade * 10, "GET", "/health")[0] == 200
        except OSError:
            return False

    def facts(self) -> dict[str, Any]:
        """What must be equal before and after."""
        for child in self._children:
            child.poll()
        return {
            "checkouts": [checkout.facts() for checkout in self.checkouts],
            "servers": [processes.find_server(home, MODULE) for home in self.homes],
            "left": [
                str(p) for home in self.homes for p in home.rglob("sessions/*/*/journal.jsonl")
            ],
        }

    def close(self) -> None:
        """End whatever runs in these homes, whoever started it."""
        processes.end_all(self.homes)
        for child in self._children:
            child.wait()

    def write(self) -> Path:
        """The user's three files; the session's path."""
        hosts = {}
        for name in NAMES:
            host = self.sshd.host(name)
            hosts[name] = {
                "address": host.address,
                "port": host.port,
                "user": host.user,
                "identity_file": host.identity_file,
                "ssh_options": dict(host.ssh_options),
            }
        inventory = {
            "hosts": hosts,
            "installs": {"checkout": {"package": PACKAGE}},
            "servers": {
                "miniature": {
                    "install": "checkout",
                    "hosts": list(NAMES),
                    "launch": "adopt",
                    "url": self.url,
                    "ready": {"path": "/health", "timeout": "30s"},
                }
            },
        }
        patch = read_patch_source().decode().replace("sglang/", f"{PACKAGE}/")
        patch = patch.replace("package: sglang", f"package: {PACKAGE}")
        project = self.folder / "project"
        for path, text in (
            (project / "inventory.yaml", json.dumps(inventory)),
            (project / "patches" / f"{PATCH}.yaml", patch),
            (project / "sessions" / "session.yaml", session_text()),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return project / "sessions" / "session.yaml"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site whose server runs."""
    with Sshd(tmp_path / "sshd", NAMES) as sshd:
        made = Site(tmp_path, sshd)
        try:
            made.start()
            yield made
        finally:
            made.close()


def test_adopted_from_git_checkouts(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer, and then: `git status`, `git diff`, inodes, times, command lines, environments
    and directories are equal.
    """
    before = site.facts()
    assert all(before["servers"])
    assert " M python/" in before["checkouts"][0]["status"]
    result = call(monkeypatch, "run", site.write(), "--runs", tmp_path / "runs")
    print(result.stages)
    assert result.code == 1, result.err
    assert "real-0 TP0, TP1; real-1 TP2, TP3  fails" in result.out
    after = site.facts()
    assert after == before
    assert site.is_ready()
    texts = [p.read_text(errors="replace") for p in (tmp_path / "runs").rglob("*") if p.is_file()]
    assert not any("s3cret" in text for text in [*texts, result.out, result.err, result.stages])


def test_an_inventory_that_does_not_fit(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another copy than the server's, and half of a server: refused before anything is written."""
    session = site.write()
    path = session.parents[1] / "inventory.yaml"
    good = json.loads(path.read_text())
    own, other = (checkout.python for checkout in site.checkouts)
    sources = [
        own.parents[2] / f"repo/python/{PACKAGE}",
        other.parents[2] / f"repo/python/{PACKAGE}",
    ]
    place = f" --> host real-0 ({path}:1)\n"
    install = {"package": PACKAGE, "python": str(other)}
    path.write_text(json.dumps({**good, "installs": {"checkout": install}}))
    result = call(monkeypatch, "plan", session)
    assert (result.code, result.err) == (
        5,
        f"error: server `miniature` imports `{PACKAGE}` from {sources[0]}, and `python` of install"
        f" `checkout` from {sources[1]}\n{place}"
        f"note: the server is run by {own}, and `python` is {other}\n"
        f"hint: write `python: {own}`, or leave `python` out for a server that runs\n"
        "hosts:\n  real-[0-1]: nothing was written, server was not touched\n",
    )
    server = {**good["servers"]["miniature"], "hosts": ["real-0"]}
    path.write_text(json.dumps({**good, "servers": {"miniature": server}}))
    result = call(monkeypatch, "plan", session)
    seen = next(line for line in result.err.splitlines() if line.startswith("note: seen: pid "))
    assert (result.code, result.err) == (
        5,
        "error: server `miniature` runs with `--nnodes 2`, and the inventory gives it 1 host\n"
        f"{place}{seen}\n"
        "hint: name the host of every node rank, in order: `hosts` of server `miniature`\n"
        "hosts:\n  real-0: nothing was written, server was not touched\n",
    )
    assert site.is_ready()
