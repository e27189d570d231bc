"""A demonstration cluster as the tests see it: variations of its files, and proofs of no trace."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

from orchestrator.demo.cluster import Cluster
from orchestrator.demo.launch import MODULE
from orchestrator.demo.layout import PATCH, FileFact
from orchestrator.demo.processes import Process, ServerFacts, read_processes

TEXT = "The capital of France is"
TARGET = "sglang/srt/models/llama_eagle3.py"
WAIT_S = 30.0


def wait_for(fact: Callable[[], Any], what: str, limit_s: float = WAIT_S) -> Any:
    """Poll until `fact` says something true."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = fact()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited in vain for {what}")


class Quiet:
    """Nobody listens."""

    def stage(self, host: str, stage: str, state: str, text: str = "") -> None: ...

    def note(self, text: str) -> None: ...

    def leave(self, text: str) -> None: ...


class Project:
    """The files that a user would write for a cluster, to be varied: plain data until `write`."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self.inventory: dict[str, Any] = yaml.safe_load(cluster.inventory.read_text())
        self.session: dict[str, Any] = yaml.safe_load(cluster.session.read_text())
        self.patch: str = (cluster.workdir / "patches" / f"{PATCH}.yaml").read_text()
        self.session["exercise"][0]["times"] = 1

    @property
    def server(self) -> dict[str, Any]:
        """The inventory's only server."""
        server: dict[str, Any] = self.inventory["servers"]["miniature"]
        return server

    @property
    def session_file(self) -> Path:
        """Where the session is written."""
        return self.folder / "sessions" / "session.yaml"

    def write(self) -> Path:
        """Write all three files; the session's path. JSON is YAML."""
        for path, text in (
            (self.folder / "inventory.yaml", json.dumps(self.inventory, indent=1)),
            (self.folder / "patches" / f"{PATCH}.yaml", self.patch),
            (self.session_file, json.dumps(self.session, indent=1)),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return self.session_file


class World:
    """A cluster, and what must be equal before and after whatever is done to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.names = [host.name for host in cluster.hosts]
        self.files = cluster.snapshot()
        self.servers = cluster.server_facts()
        self.tokens = cluster.generate(TEXT)["output_ids"]

    def target(self, host: str) -> Path:
        """The file that the session patches."""
        return next(h.site for h in self.cluster.hosts if h.name == host) / TARGET

    def state_dir(self, host: str) -> Path:
        """Where the agent of a host keeps its state."""
        home = next(h.home for h in self.cluster.hosts if h.name == host)
        return home / ".local" / "state" / "sgldbg"

    def is_whole(self) -> bool:
        """Whether the cluster answers as it did; quick, for whoever inherits it from a test."""
        return self.find_differences() == []

    def find_differences(self) -> list[str]:
        """As `differences`, also while the server is on its way."""
        try:
            return self.differences()
        except (OSError, HTTPException) as error:
            return [f"no answer: {error}"]

    def differences(self) -> list[str]:
        """Everything that is not as it was, in words."""
        found = _differences(self.files, self.cluster.snapshot())
        found += _differences(self.servers, self.cluster.server_facts())
        if not found and self.cluster.generate(TEXT)["output_ids"] != self.tokens:
            found.append("other tokens")
        return found + self.leftovers()

    def leftovers(self) -> list[str]:
        """What a session would leave: its directories, its processes."""
        found = []
        for host in self.cluster.hosts:
            sessions = self.state_dir(host.name) / "sessions"
            found += [f"left: {path}" for path in sessions.rglob("journal.jsonl")]
            found += [f"left: {path}" for path in (host.home.parent / "tmp").glob("sgldbg-*")]
        for host in self.cluster.hosts:
            for process in self.helpers(host.name):
                found.append(f"left: process {process.pid} ({' '.join(process.argv)[:120]})")
        return found

    def helpers(self, host: str) -> list[Process]:
        """Every process of a host that is no part of its server: agents, guards, shells."""
        home = next(h.home for h in self.cluster.hosts if h.name == host)
        every = read_processes([home])
        server = {p.pid for p in every if MODULE in p.argv}
        while more := {p.pid for p in every if p.ppid in server} - server:
            server |= more
        return [p for p in every if p.pid not in server]

    def is_back(self) -> bool:
        """Files, server and tokens as they were; what waits for the next contact does not count."""
        return all(d.startswith("left: /") for d in self.find_differences())

    def assert_as_before(self) -> None:
        """Files, servers and tokens as they were, nothing left; agents need a moment to leave."""
        _wait_for_none(self.find_differences)

    def assert_nothing_left(self) -> None:
        """No directory and no process of a session; agents need a moment to leave."""
        _wait_for_none(self.leftovers)

    def forget_ended(self) -> None:
        """Drop the journals of ended sessions, so that one test does not see another's."""
        for name in self.names:
            shutil.rmtree(self.state_dir(name) / "ended", ignore_errors=True)


def _wait_for_none(find: Callable[[], list[str]]) -> None:
    deadline = time.monotonic() + WAIT_S
    while found := find():
        if time.monotonic() > deadline:
            raise AssertionError("\n".join(found))
        time.sleep(0.05)


def _differences(
    before: dict[str, FileFact] | dict[str, ServerFacts | None], after: dict[str, Any]
) -> list[str]:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [f"{name}: was {before.get(name)}, is {after.get(name)}" for name in names]
