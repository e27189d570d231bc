"""A server in each of the ways in which one is run, for one suite that holds for all of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.client import AgentClient
from orchestrator.agent.ship import open_agent
from orchestrator.errors import HostError
from orchestrator.model.inventory import (
    Host,
    Install,
    Launch,
    LaunchAdopt,
    LaunchCommand,
    LaunchPair,
    LaunchSystemd,
    Server,
)
from orchestrator.servers.base import Found, find, make_description_args
from orchestrator.servers.ready import wait_ready
from orchestrator.transport.routes import open_transport
from tests.onhost.process.conftest import wait_for

from .conftest import Bench
from .real_systemd import RealSystemd

UNIT = "kimi.service"
STANDIN = Path(__file__).with_name("standin_systemctl.py")
HOST = Host("gpu01", transport="local")
CONTROL = """#!/bin/sh
# Stops and starts the server as somebody's own tool does.
cd {folder} || exit 1
unset PYTEST_CURRENT_TEST
case $1 in
start)
    shift
    READY={folder}/ctl.ready setsid nohup {argv} "$@" >>server.log 2>&1 &
    echo $! >server.pid ;;
stop)
    kill "$(cat server.pid)" ;;  # returns before the server has ended, as many do
esac
"""


class Way:
    """One running server, and what the inventory says of it.

    With `manager` it runs below a real systemd, in process numbers of its own.
    """

    def __init__(
        self, name: str, bench: Bench, port: int, manager: RealSystemd | None = None
    ) -> None:
        self.name = name
        self.unit = UNIT
        self.manager = manager
        self.enter = manager.enter if manager else ()
        self.host = replace(HOST, enter=self.enter)
        self.bench = bench
        self.port = port
        self.install = Install("env", sys.executable, bench.package)
        self.root = bench.folder / "systemd"
        self.units = manager.units if manager else self.root / "etc"
        self.runtime = manager.runtime if manager else self.root / "run/systemd/system"
        self.argv = bench.argv("--port", str(port))

    @property
    def session(self) -> dict[str, str]:
        """A session's name is part of what it ends, so that no two tests may have the same."""
        return {"session": self.bench.package, "host": self.host.name}

    def launch(self) -> Launch:
        """What stands in the inventory."""
        control = str(self.bench.folder / "ctl")
        kinds: dict[str, Launch] = {
            "adopt": LaunchAdopt(),
            "command": LaunchCommand(tuple(self.argv)),
            "systemd": LaunchSystemd(self.unit),
            "pair": LaunchPair((control, "stop"), (control, "start", "{args}")),
        }
        return kinds[self.name]

    def server(self) -> Server:
        """The inventory's server."""
        return self.bench.server(self.port, self.launch(), timeout_s=20)

    def start(self) -> None:
        """Start it in its way, before anybody of us comes."""
        if self.name == "systemd":
            self._start_unit()
        elif self.name == "pair":
            control = self.bench.folder / "ctl"
            words = {"folder": self.bench.folder, "argv": " ".join(self.argv)}
            control.write_text(CONTROL.format(**words))
            control.chmod(0o755)
            self.run([str(control), "start"], "ctl.ready")
        else:
            self.bench.run("--port", str(self.port))

    def outer(self, pid: int) -> int:
        """The number that a process of its host has for the test."""
        return self.manager.outer(pid) if self.manager else pid

    def _start_unit(self) -> None:
        if not self.manager:
            self.units.mkdir(parents=True)
            self.runtime.mkdir(parents=True)
        (self.units / UNIT).write_text(
            "[Service]\n"
            f"ExecStart={' '.join(self.argv)}\n"
            f"WorkingDirectory={self.bench.folder}\n"
            f'Environment="READY={self.bench.folder}/unit.ready" TOKEN=hush\n'
            "Restart=always\n"
        )
        self.run(["systemctl", "daemon-reload"], None)
        self.run(["systemctl", "start", UNIT], "unit.ready")

    def run(self, command: list[str], ready: str | None) -> None:
        plain = {n: v for n, v in os.environ.items() if not n.startswith("SGLDBG_")}
        words = [*self.enter, *command]
        subprocess.run(words, check=True, env=plain, stdin=subprocess.DEVNULL, timeout=60)
        if ready:
            wait_for((self.bench.folder / ready).exists, ready)

    def drop_ins(self) -> list[Path]:
        """What lies beside the unit, which is nothing unless a debug life runs."""
        return sorted(self.runtime.glob("*.d"))


class Driver:
    """A session's steps on one host, by the agent's ops, without files that are patched."""

    def __init__(self, way: Way, agent: AgentClient) -> None:
        self.way = way
        self.agent = agent
        self.found: Found | None = None

    def begin(self) -> Found:
        """Find the server, take the lease and describe it."""
        way = self.way
        self.found = find(self.agent, way.server(), way.install, way.host, 0, 1)
        args = {**way.session, "holder": "test", "lease_s": 60.0, "grace_s": 1.0}
        self.agent.call("begin", args, timeout_s=30)
        args = make_description_args(self.found, way.server())
        self.agent.call("describe-server", args, timeout_s=30)
        return self.found

    def stop(self, which: str) -> dict[str, Any]:
        """Stop one life; nothing may be left of it."""
        args = {"which": which, "timeout_s": 10, "port": self.way.port}
        value: dict[str, Any] = self.agent.call("stop-server", args, timeout_s=60).value
        assert value["left"] == [], value
        return value

    def start(self, life: Any) -> dict[str, Any]:
        """Start the debug life."""
        args = {
            "argv": list(life.argv),
            "env_set": dict(life.env_set),
            "env_unset": list(life.env_unset),
            "cwd": life.cwd,
        }
        value: dict[str, Any] = self.agent.call("start-server", args, timeout_s=60).value
        self.way.bench.stage.note(self.way.outer(value["pid"]))
        return value

    def restore(self) -> dict[str, Any]:
        """Start the original again."""
        value: dict[str, Any] = self.agent.call("restore-server", timeout_s=60).value
        self.way.bench.stage.note(self.way.outer(value["pid"]))
        return value

    def wait_ready(self, life: dict[str, Any]) -> str:
        """Wait until that life is ready and say how it showed."""
        return wait_ready(self.agent, self.way.server(), life, 0).how


@contextlib.contextmanager
def open_driver(way: Way) -> Iterator[Driver]:
    """A driver with an agent of its own over pipes."""
    agent = open_agent(open_transport(), way.host, timeout_s=30)
    try:
        yield Driver(way, agent)
    finally:
        with contextlib.suppress(HostError):  # not begun, finished, or the agent was killed
            agent.call("recover", way.session, timeout_s=60)
        agent.close()


def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path | None) -> None:
    """Nothing outside of the test's folder; with `root`, a stand-in for systemd's tools."""
    folder, temporary = tmp_path / "tools", tmp_path / "tmp"
    temporary.mkdir()
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "state"))
    if root is None:
        return
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN_SYSTEMD", str(root))
    for name in ("systemctl", "journalctl"):
        shutil.copy(STANDIN, folder / name)
        (folder / name).chmod(0o755)
