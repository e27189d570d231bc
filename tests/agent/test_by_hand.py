"""The agent run by hand on the host, with no controller: what is changed, and undoing it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent.client import AgentClient
from orchestrator.agent.ship import make_zipapp, open_agent
from orchestrator.model.inventory import Host
from orchestrator.transport.routes import open_transport


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Hand:
    """The kept zipapp, as somebody on the host would start it."""

    def __init__(self, state: Path) -> None:
        self.pyz = state / "agent" / f"{make_zipapp().sha256}.pyz"

    def run(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-I", str(self.pyz), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    def wait_for(self, code: int, *words: str) -> str:
        until = time.monotonic() + 30
        while True:
            found, text = self.run(*words)
            if found == code:
                return text
            assert time.monotonic() < until, text


@pytest.fixture
def target(tmp_path: Path) -> Path:
    package = tmp_path / "lib" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "a.py").write_bytes(b"x = 1\n")
    return package / "a.py"


@pytest.fixture
def patched(target: Path) -> Iterator[AgentClient]:
    """A session that has swapped one file, with its agent and guard."""
    agent = open_agent(open_transport(), Host("here", transport="local"), 30.0)
    begin = {"session": "s1", "host": "here", "holder": "me@desk", "lease_s": 60, "grace_s": 0.2}
    agent.call("begin", begin)
    new = b"x = 2\n"
    file = {
        "file": "pkg/a.py",
        "before_sha256": sha256(b"x = 1\n"),
        "after_sha256": sha256(new),
        "size": len(new),
    }
    place = {"root": str(target.parent.parent), "package": "pkg", "pycache_prefix": None}
    agent.call("stage", {**place, "tag": "cpython-311", "files": [file]}, new)
    agent.call("swap")
    assert target.read_bytes() == new
    yield agent
    agent.close()


def test_status_and_revert(patched: AgentClient, target: Path, tmp_path: Path) -> None:
    """While the lease is live the host says who holds it; afterwards it ends the session itself."""
    hand = Hand(tmp_path / "state")
    code, text = hand.run("status")
    lines = text.splitlines()
    assert code == 7
    assert lines[0] == "s1 on here: patched"
    assert lines[1].startswith("  held by me@desk since 20")
    assert lines[2].startswith("  reverts by itself in ")
    assert lines[2].endswith(" s, the guard is alive")
    assert lines[3:] == [f"  {target}: patched", "  server: untouched"]
    code, text = hand.run("revert", "--all")
    assert code == 7
    assert text.startswith("s1 on here: not reverted (busy): the session's lease is live for ")
    patched.close()
    text = hand.wait_for(0, "revert", "s1")
    assert target.read_bytes() == b"x = 1\n"
    assert text.splitlines()[-1] == "s1 on here: reverted and verified"
    assert hand.run("status") == (0, f"nothing is changed: no session in {tmp_path}/state\n")
    assert hand.run("revert", "--all") == (0, f"no session in {tmp_path}/state\n")
    assert hand.run("revert", "s1") == (2, f"no session `s1` in {tmp_path}/state\n")


def test_usage(tmp_path: Path) -> None:
    """What is not understood changes nothing and is answered by the few words there are."""
    pyz = tmp_path / "agent.pyz"
    pyz.write_bytes(make_zipapp().data)
    for words in (
        [],
        ["revert"],
        ["revert", "-x"],
        ["revert", "a", "b"],
        ["status", "x"],
        ["dance"],
    ):
        done = subprocess.run(
            [sys.executable, "-I", str(pyz), *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.startswith("usage: python3 AGENT.pyz status ")
