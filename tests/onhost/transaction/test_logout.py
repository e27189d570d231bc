"""The end of a login, in a real systemd with its logind: what is left of a guard."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import orchestrator.onhost
from orchestrator.onhost.agent.session import logout
from tests.onhost.process.conftest import wait_for
from tests.servers.real_logind import RealLogind, find_hindrance

USER, UID = "nobody", 65534
# What a login runs: an agent that begins a session. Its answer is told once it has ended, so that
# whoever reads it knows that the login is over.
AGENT = """import json, sys
from agent import ops_session
from agent.held.state import Context
args = {"session": sys.argv[1], "host": "gpu1", "holder": "ann", "lease_s": 60.0, "grace_s": 60.0}
value, _ = ops_session.op_begin(Context(sys.argv[2]), args, b"")
print(json.dumps(value))
"""


class Logins:
    """Logins of one user, in a systemd of their own."""

    def __init__(self, top: Path, systemd: RealLogind) -> None:
        self.top, self.systemd = top, systemd
        self.python = find_python()
        shutil.copytree(Path(orchestrator.onhost.__path__[0]) / "agent", top / "agent")
        (top / "begin.py").write_text(AGENT)

    def begin(self, session: str) -> dict[str, Any]:
        """Begin a session in a login of its own and log out."""
        words = [str(self.python), str(self.top / "begin.py"), session, str(self.top / "state")]
        line = f"TMPDIR={self.top} exec {' '.join(words)}"
        done = self.run("systemd-run", "--quiet", "--collect", "--wait", "--pipe",
                        "--property=KillMode=process",
                        "su", "-s", "/bin/sh", USER, "-c", line)  # fmt: skip
        value: dict[str, Any] = json.loads(done)
        return value

    def run(self, *command: str) -> str:
        """What a command says that must succeed inside."""
        done = subprocess.run(
            [*self.systemd.enter, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def state(self) -> str:
        """`closing` where the logins are over and a process of theirs is not; empty without any."""
        lines = self.run("loginctl", "list-sessions", "--no-legend").split("\n")
        states = {
            self.run("loginctl", "show-session", line.split()[0], "--property=State", "--value")
            for line in lines
            if line.strip()
        }
        return ",".join(sorted(state.strip() for state in states))

    def scope(self, value: dict[str, Any]) -> str:
        """The cgroup of the guard; empty where it has ended."""
        try:
            outer = self.systemd.outer(value["guard"]["pid"])
            lines = Path(f"/proc/{outer}/cgroup").read_text().splitlines()
        except (AssertionError, OSError):
            return ""
        return next(line[3:] for line in lines if line.startswith("0::"))


def find_python() -> Path:
    """An interpreter that another user can run; a developer's often lies in a closed home."""
    for path in (sys.executable, os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            subprocess.run([path, "-c", ""], user=UID, check=True, capture_output=True, timeout=30)
        except (OSError, subprocess.CalledProcessError):
            continue
        return Path(path)
    pytest.fail("no Python that everybody may run")


@contextmanager
def logins(kill: bool) -> Iterator[Logins]:
    """Logins whose end takes their processes along, or not."""
    hindrance = find_hindrance()
    if hindrance:
        pytest.skip(f"no real logind: {hindrance}")
    top = Path(tempfile.mkdtemp(prefix="sgldbg-logout-", dir="/tmp"))
    top.chmod(0o777)
    systemd = RealLogind(kill)
    try:
        yield Logins(top, systemd)
    finally:
        systemd.close()
        shutil.rmtree(top)


def test_a_guard_outlives_the_login():
    """In the login's scope where only the user's manager ends, else in one of that manager."""
    with logins(kill=False) as host:
        value = host.begin("s1")
        assert value["ends_at_logout"] is None
        wait_for(lambda: host.state() == "closing", "the end of the login")
        assert host.scope(value).rsplit("/", 1)[1].startswith("session-")
        host.run("loginctl", "enable-linger", USER)
        lingering = host.begin("s2")
        assert lingering["ends_at_logout"] is None
        assert f"/user@{UID}.service/app.slice/run-" in host.scope(lingering)


def test_a_guard_that_ends_with_the_login():
    """Where no process of a user may stay, that is told; lingering lets it."""
    with logins(kill=True) as host:
        value = host.begin("s1")
        assert value["ends_at_logout"] == USER
        wait_for(lambda: host.state() == "", "the end of the login")
        wait_for(lambda: host.scope(value) == "", "the end of its guard")
        host.run("loginctl", "enable-linger", USER)
        lingering = host.begin("s2")
        assert lingering["ends_at_logout"] is None
        wait_for(lambda: host.state() == "", "the end of the login")
        assert f"/user@{UID}.service/app.slice/run-" in host.scope(lingering)


def test_root_and_hosts_without_systemd(tmp_path, monkeypatch):
    """Root's guard gets a scope of the system's manager; without systemd nothing is needed."""
    tool = tmp_path / "systemd-run"
    tool.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    running = str(tmp_path)
    assert logout.find_scope(0, running) == [str(tool), "--scope", "--quiet", "--collect", "--"]
    assert not logout.kills_all(0, running)
    absent = str(tmp_path / "absent")
    assert logout.find_scope(UID, absent) == logout.find_scope(0, absent) == []
    assert not logout.kills_all(UID, absent)
    # systemd without a logind: nobody ends what a login leaves.
    assert logout.find_scope(UID, running) == []
    assert not logout.kills_all(UID, running)
