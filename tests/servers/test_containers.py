"""The agent works inside of a container: a session there, its refusals, and a container's end."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import HostError
from orchestrator.servers.base import debug_life
from tests.onhost.process.conftest import wait_for

from .conftest import Bench
from .containers import Namespaces, Podman
from .test_ways import CHANGE, note_all
from .ways import Driver, Way, open_driver, prepare

AS_ROOT = os.geteuid() == 0 and shutil.which("nsenter") is not None
pytestmark = pytest.mark.skipif(
    not AS_ROOT, reason="namespaces need root and nsenter: containers are not tried here"
)
NO_PODMAN = "podman and runc are not installed: only bare namespaces play the container"
PAIR = "launch: {stop: [...], start: [...]}"


@pytest.fixture(params=["namespaces", "podman"])
def container(request, bench: Bench, tmp_path: Path, monkeypatch) -> Iterator[Any]:
    """Not started yet."""
    if request.param == "podman" and not (shutil.which("podman") and shutil.which("runc")):
        pytest.skip(NO_PODMAN)
    prepare(tmp_path, monkeypatch, tmp_path)
    made = Namespaces(bench) if request.param == "namespaces" else Podman(bench)
    yield made
    made.close()
    note_all(bench)


@pytest.fixture
def namespaces(bench: Bench, tmp_path: Path, monkeypatch) -> Iterator[Namespaces]:
    """For what does not depend on the engine."""
    prepare(tmp_path, monkeypatch, tmp_path)
    made = Namespaces(bench)
    yield made
    made.close()
    note_all(bench)


def make_way(container: Any, bench: Bench, port: int) -> Way:
    way = Way("adopt", bench, port)
    way.host = replace(way.host, enter=container.enter)
    return way


def patch(driver: Driver, bench: Bench) -> str:
    """Put other bytes in the place of a file of the package; returns the file."""
    file, after = f"{bench.package}/__init__.py", b"# patched\n"
    planned = {
        "file": file,
        "before_sha256": hashlib.sha256(b"").hexdigest(),
        "after_sha256": hashlib.sha256(after).hexdigest(),
        "size": len(after),
    }
    tag = sys.implementation.cache_tag
    where = {"root": str(bench.folder), "package": bench.package, "tag": tag}
    args = {**where, "pycache_prefix": None, "files": [planned]}
    driver.agent.call("stage", args, after, timeout_s=30)
    driver.agent.call("swap", timeout_s=30)
    return str(bench.folder / file)


def test_a_container_that_is_stopped_half_way(container, bench: Bench, port):
    """A session works inside; with the container go agent and guard, but not what was patched.

    The next contact after its start puts the file back and gives the server back.
    """
    container.start("sleep", "600")
    container.run(*bench.argv("--port", str(port)))
    way = make_way(container, bench, port)
    with open_driver(way) as driver:
        found = driver.begin()
        assert found.description is not None
        assert found.description["pid"] < 300  # a number of the container's own
        driver.stop("original")
        file = patch(driver, bench)
        driver.wait_ready(driver.start(debug_life(found.original, CHANGE)))
        driver.agent.call("renew", {"lease_s": 0.3})
        container.stop()
    container.again()
    way.host = replace(way.host, enter=container.enter)
    assert container.succeeds("grep", "-q", "patched", file)
    with open_driver(way) as driver:
        (left,) = driver.agent.call("status").value["sessions"]
        assert (left["session"], left["guard"]) == (bench.package, "dead")
        value = wait_for(lambda: _recover(driver, way), "the end of its lease")
        assert (value["left"], value["verified"]) == ([], True)
        assert container.succeeds("test", "!", "-s", file)
        driver.wait_ready(value["server"])
        assert driver.agent.call("status").value["sessions"] == []


def _recover(driver: Driver, way: Way) -> Any:
    try:
        return driver.agent.call("recover", way.session, timeout_s=60).value
    except HostError as error:
        if error.code != "busy":
            raise
        return None


def test_a_whole_session_inside(namespaces, bench: Bench, port):
    """A container that lives on without its server is a host like any other."""
    namespaces.start("sleep", "600")
    namespaces.run(*bench.argv("--port", str(port)))
    with open_driver(make_way(namespaces, bench, port)) as driver:
        found = driver.begin()
        driver.stop("original")
        patch(driver, bench)
        driver.wait_ready(driver.start(debug_life(found.original, CHANGE)))
        driver.stop("debug")
        assert driver.agent.call("revert", {"force": False}, timeout_s=30).value["verified"]
        back = driver.restore()
        assert back["differences"] == []
        driver.wait_ready(back)
        assert driver.agent.call("finish", timeout_s=30).value == {"left": []}


def refused(container: Namespaces, bench: Bench, port: int) -> HostError:
    wait_for((bench.folder / "main.ready").exists, "the server")
    with open_driver(make_way(container, bench, port)) as driver:
        with pytest.raises(HostError) as error:
            driver.begin()
        return error.value


def test_a_server_that_is_the_main_process(namespaces, bench: Bench, port):
    """Refused: its end is that of the container, with everything of ours inside."""
    namespaces.start(*bench.argv("--port", str(port)))
    error = refused(namespaces, bench, port)
    assert (error.code, error.message, error.hints) == (
        "not-restorable",
        "server `kimi` could not be started again as it is: it is process 1 of its container,"
        " which ends with it",
        (f"name the commands that stop and start it, outside of the container: `{PAIR}`",),
    )


def test_a_server_that_the_main_process_waits_for(namespaces, bench: Bench, port):
    """An entry point that is a script ends with the server, and the container with it."""
    line = " ".join(bench.argv("--port", str(port)))
    namespaces.start("sh", "-c", f"{line}; exit 1")
    error = refused(namespaces, bench, port)
    assert (error.code, error.message, error.hints) == (
        "not-restorable",
        "server `kimi` could not be started again as it is: sh -c (pid 1), the main process of"
        " its container, which ends with it, owns it",
        (f"name the commands that stop and start it, outside of the container: `{PAIR}`",),
    )
