"""A cable that is really cut, between two network namespaces, under a session over OpenSSH."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.demo import launch, processes
from orchestrator.demo.layout import PATCH, read_patch_source, session_text
from orchestrator.demo.processes import ServerFacts
from orchestrator.model.inventory import Host
from tests.session.checkout import Checkout, make_checkout
from tests.session.command import start
from tests.session.world import wait_for
from tests.transport.test_dead_link import Cable, cable, far_host

__all__ = ["cable", "far_host"]

PACKAGE = "sglang_far"
MODULE = f"{PACKAGE}.launch_server"
# Of the far end's own loopback; another test's far end has another one, and shares our /proc.
PORT = 10 * (2000 + os.getpid() % 4000)


class FarServer:
    """A server at the far end of the cable, started by hand."""

    def __init__(self, folder: Path, cable: Cable, home: Path) -> None:
        self.cable = cable
        self.home = home
        self.checkout: Checkout = make_checkout(folder, PACKAGE)
        words = launch.fill(launch.server_command(PORT // 10, 1, "EAGLE"), 0)[3:]
        with open(home / "server.log", "ab") as log:
            self.child = subprocess.Popen(
                [*cable.enter, str(self.checkout.python), "-m", MODULE, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                env={"HOME": str(home), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
                start_new_session=True,
            )

    def facts(self) -> tuple[dict[str, object], ServerFacts | None]:
        """What must be equal before and after."""
        self.child.poll()
        return self.checkout.facts(), processes.find_server(self.home, MODULE)

    def is_ready(self) -> bool:
        """Whether it serves, asked at the far end."""
        ask = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/health')"
        asked = [*self.cable.enter, str(self.checkout.python), "-c", ask]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    def close(self) -> None:
        """End whatever runs in this home."""
        processes.end_all([self.home])
        self.child.wait()


@pytest.fixture
def server(tmp_path: Path, cable: Cable, far_host: Host) -> Iterator[FarServer]:
    """A server that is ready."""
    cable.far("link", "set", "lo", "up")
    made = FarServer(tmp_path / "far", cable, tmp_path / "sshd" / "h0" / "home")
    try:
        wait_for(made.is_ready, "the server")
        yield made
    finally:
        made.close()


def write_project(folder: Path, host: Host) -> Path:
    """The user's three files; the session's path."""
    entry = {
        "address": host.address,
        "port": host.port,
        "user": host.user,
        "identity_file": host.identity_file,
        "ssh_options": dict(host.ssh_options),
    }
    inventory = {
        "hosts": {"far": entry},
        "installs": {"checkout": {"package": PACKAGE}},
        "servers": {
            "miniature": {
                "install": "checkout",
                "hosts": ["far"],
                "launch": "adopt",
                "url": f"http://127.0.0.1:{PORT}",
                "ready": {"path": "/health", "timeout": "30s"},
            }
        },
    }
    patch = read_patch_source().decode().replace("sglang/", f"{PACKAGE}/")
    for name, text in (
        ("inventory.yaml", json.dumps(inventory)),
        (f"patches/{PATCH}.yaml", patch.replace("package: sglang", f"package: {PACKAGE}")),
        ("sessions/session.yaml", session_text()),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "sessions" / "session.yaml"


@pytest.mark.parametrize("silence", ["cut", pytest.param("mute", marks=pytest.mark.chaos)])
def test_the_guard_acts_behind_a_silent_cable(
    server: FarServer, far_host: Host, tmp_path: Path, silence: str
) -> None:
    """Nobody is told of the cut: the host reverts by itself, and the controller, once it gets
    through again, takes the guard's word for it and ends the session.
    """
    before = server.facts()
    assert before[1] is not None
    session = write_project(tmp_path / "project", far_host)
    with start("run", session, "--lease", "4s", "--runs", tmp_path / "runs") as running:
        running.wait_line("far: ready done")
        assert server.facts() != before
        getattr(server.cable, silence)()
        wait_for(lambda: server.facts() == before, "the guard", 60.0)
        running.wait_line("far is out of reach")
        server.cable.mend()
        result = running.end()
    wait_for(server.is_ready, "the server")
    assert result.code == 6, result.err
    # Whoever waited for an answer tells it: an op that was on its way, or the heartbeat.
    said = "error: (far missed its heartbeats|lost the connection|no answer to|`.*` was cut off)"
    assert re.search(said, result.err), result.err
    assert "far: its guard had reverted it by itself" in result.err
    assert not list((server.home / ".local/state/sgldbg/sessions").rglob("journal.jsonl"))
    assert server.facts() == before


@pytest.mark.chaos
def test_a_connection_that_breaks_behind_a_cable(
    server: FarServer, far_host: Host, tmp_path: Path
) -> None:
    """The far end of the connection dies: its tail runs over another one, before any guard."""
    before = server.facts()
    session = write_project(tmp_path / "project", far_host)
    with start("run", session, "--runs", tmp_path / "runs") as running:
        running.wait_line("far: ready done")
        assert server.cable.end_connections() > 0
        result = running.end()
    wait_for(server.is_ready, "the server")
    assert result.code == 6, result.err
    assert "far: came back on a new connection" in result.err
    assert "its guard had reverted it" not in result.err
    assert server.facts() == before


@pytest.mark.chaos
def test_a_controller_that_dies_before_a_cable(
    server: FarServer, far_host: Host, tmp_path: Path
) -> None:
    """SIGKILL to the controller while the cable is cut: no word of it reaches the host."""
    before = server.facts()
    session = write_project(tmp_path / "project", far_host)
    with start("run", session, "--lease", "4s", "--runs", tmp_path / "runs") as running:
        running.wait_line("far: ready done")
        server.cable.cut()
        running.send(signal.SIGKILL)
        running.end()
    wait_for(lambda: server.facts() == before, "the guard", 60.0)
    wait_for(server.is_ready, "the server")
    server.cable.mend()
    with start("revert", session) as reverting:
        result = reverting.end()
    assert result.code == 0, result.err
    assert not list((server.home / ".local/state/sgldbg/sessions").rglob("journal.jsonl"))
    assert server.facts() == before
