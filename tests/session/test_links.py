"""Links that break in the middle: come back or not, with a word or without."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrator.session.steps import tail
from tests.session.command import call, once
from tests.session.link import Link
from tests.session.world import Project, World, wait_for


@pytest.fixture
def links(project: Project) -> Iterator[dict[str, Link]]:
    """A link of its own to each host; the project goes through them."""
    with ExitStack() as stack:
        made = {}
        options = project.inventory["defaults"]["ssh_options"]
        known = Path(options["UserKnownHostsFile"]).read_text()
        for name, host in project.inventory["hosts"].items():
            made[name] = stack.enter_context(Link((host["address"], host["port"])))
            port = made[name].port
            known = known.replace(f"]:{host['port']} ", f"]:{port} ")
            host["port"] = port
        file = project.folder / "known_hosts"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(known)
        options["UserKnownHostsFile"] = str(file)
        yield made


@pytest.fixture
def run(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the project with a hook; a miniature server ends in a fraction of a second."""
    monkeypatch.setattr(tail, "_GUARD_WORK_S", 4.0)
    monkeypatch.setattr(tail, "_HALF_READY_S", 10.0)

    def run(hook: Any) -> Any:
        result = call(monkeypatch, "run", project.write(), "--runs", tmp_path / "runs", hook=hook)
        print(result.stages, result.err)
        return result

    return run


def test_a_link_that_comes_back(
    world: World, project: Project, links: dict[str, Link], run: Any
) -> None:
    """The session ends, and its tail runs over a new connection before the guard would."""
    project.session["until"] |= {"count": 1000, "timeout": "60s"}

    def break_for_a_moment() -> None:
        links["demo-1"].cut()
        threading.Timer(2.0, links["demo-1"].mend).start()

    result = run(once(("demo-0", "exercise", "done"), break_for_a_moment))
    world.assert_as_before()
    assert result.code == 6, result.err
    assert "demo-1: came back on a new connection" in result.err
    assert result.err.startswith("error: demo-1 missed its heartbeats: lost the ")


def test_a_link_that_stays_down(
    world: World,
    project: Project,
    links: dict[str, Link],
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exit code 7 names the host that nobody knows of; its guard has reverted it all the same."""
    project.session["lease"] = "4s"
    result = run(once(("demo-1", "arm", "done"), links["demo-1"].cut))
    assert result.code == 7
    assert "  demo-1: state of the files is unknown, state of the server is unknown\n" in result.err
    wait_for(world.is_back, "the guard of demo-1")
    links["demo-1"].mend()
    inventory = ("--inventory", project.folder / "inventory.yaml")
    ended = call(monkeypatch, "revert", "--all", *inventory)
    assert ended.code == 0, ended.err
    world.assert_as_before()


def test_a_host_that_falls_silent(
    world: World, project: Project, links: dict[str, Link], run: Any
) -> None:
    """Nothing is reset, nothing answers: the other host stops and reverts at once, but starts its
    server only when the lease and grace of the silent one are over.
    """
    project.session["lease"] = "4s"
    project.session["until"] |= {"count": 1000, "timeout": "60s"}
    times: dict[str, float] = {}
    agents: list[int] = []

    def silence() -> None:
        times["silent"] = time.monotonic()
        links["demo-1"].mute()
        agents.extend(p.pid for p in world.helpers("demo-1") if "guard" not in " ".join(p.argv))
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)

    def hook(host: str, stage: str, state: str, text: str) -> None:
        if host == "demo-0" and state == "done" and stage in ("revert", "restore"):
            times.setdefault(stage, time.monotonic())
        silence_once(host, stage, state, text)

    silence_once = once(("demo-0", "exercise", "done"), silence)
    result = run(hook)
    assert agents
    for pid in agents:  # the guard has ended it already; else it must be refused now
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue
    links["demo-1"].mend()
    assert result.code == 7, result.err
    assert times["revert"] - times["silent"] < 8.0
    assert times["restore"] - times["silent"] >= 8.0
    wait_for(world.is_back, "both hosts")
