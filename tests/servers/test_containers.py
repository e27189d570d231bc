"""Containers, in the kernel's terms: process and mount namespaces that `nsenter` leads into."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import HostError
from orchestrator.onhost.agent import procfs
from orchestrator.servers.base import debug_life
from tests.onhost.process.conftest import wait_for

from .conftest import Bench
from .test_ways import CHANGE, note_all
from .ways import Way, open_driver, prepare

AS_ROOT = os.geteuid() == 0 and shutil.which("nsenter") is not None
pytestmark = pytest.mark.skipif(
    not AS_ROOT, reason="namespaces need root and nsenter: containers are not tried here"
)
UNSHARE = ["unshare", "--pid", "--fork", "--mount", "--mount-proc"]


class Container:
    """One container whose files are those of the machine; it ends with its main process."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._shells: list[subprocess.Popen[bytes]] = []
        self.main = 0

    def start(self, *command: str) -> None:
        """Run the container's main process, as process 1 of its own."""
        argv = [*UNSHARE, "setsid", *command]
        env = {**os.environ, "READY": str(self.bench.folder / "container.ready")}
        null = subprocess.DEVNULL
        with open(self.bench.stderr, "ab") as log:
            shell = subprocess.Popen(
                argv, env=env, cwd=self.bench.folder, stdin=null, stdout=null, stderr=log
            )
        self._shells.append(shell)
        self.main = wait_for(lambda: self._find_main(shell.pid), "the container")

    def _find_main(self, shell: int) -> int | None:
        tree = procfs.find_tree(shell, procfs.read_all())
        done = [
            s.pid for s in tree[1:] if procfs.read_status(s.pid).get("NSpid", "").endswith("\t1")
        ]
        name = procfs.read_title(done[0]) if done else "unshare"
        return done[0] if not name.startswith(("unshare", "setsid")) else None

    @property
    def enter(self) -> tuple[str, ...]:
        """What stands in the inventory, `docker exec -i NAME` of other containers."""
        return ("nsenter", "-t", str(self.main), "-m", "-p", "--")

    def run(self, *command: str) -> None:
        """Start something inside that outlives the way in."""
        ready = self.bench.folder / "inside.ready"
        env = {**os.environ, "READY": str(ready)}
        null = subprocess.DEVNULL
        with open(self.bench.stderr, "ab") as log:
            # nsenter leads into the root directory.
            go = ["sh", "-c", 'cd "$0" && exec "$@"', str(self.bench.folder)]
            argv = [*self.enter, "setsid", "--fork", *go, *command]
            subprocess.run(
                argv,
                env=env,
                cwd=self.bench.folder,
                stdin=null,
                stdout=null,
                stderr=log,
                check=True,
            )
        wait_for(ready.exists, "the server inside")

    def stop(self) -> None:
        """End it with everything inside, as `podman stop` does."""
        os.kill(self.main, 9)
        self._shells[-1].wait(30)

    def close(self) -> None:
        """End all that were started."""
        for shell in self._shells:
            if shell.poll() is None:
                for stat in procfs.find_tree(shell.pid, procfs.read_all())[1:]:
                    os.kill(stat.pid, 9)
                    break
            shell.wait(30)


@pytest.fixture
def container(bench: Bench, tmp_path: Path, monkeypatch) -> Iterator[Container]:
    """Not started yet."""
    prepare(tmp_path, monkeypatch, tmp_path)
    made = Container(bench)
    yield made
    made.close()
    note_all(bench)


def make_way(container: Container, bench: Bench, port: int) -> Way:
    way = Way("adopt", bench, port)
    way.host = replace(way.host, enter=container.enter)
    return way


def test_a_server_beside_the_main_process(container, bench: Bench, port):
    """A container that lives on without its server takes a whole session."""
    container.start("sleep", "600")
    container.run(*bench.argv("--port", str(port)))
    way = make_way(container, bench, port)
    with open_driver(way) as driver:
        found = driver.begin()
        assert found.description is not None
        assert found.description["pid"] < 100  # a number of the container's own
        driver.stop("original")
        life = driver.start(debug_life(found.original, CHANGE))
        driver.wait_ready(life)
        driver.stop("debug")
        back = driver.restore()
        assert back["differences"] == []
        driver.wait_ready(back)
        assert driver.agent.call("finish", timeout_s=30).value == {"left": []}


def test_a_container_that_is_stopped_half_way(container, bench: Bench, port):
    """With it go agent and guard; the next contact after its start gives the server back."""
    container.start("sleep", "600")
    container.run(*bench.argv("--port", str(port)))
    way = make_way(container, bench, port)
    with open_driver(way) as driver:
        found = driver.begin()
        driver.stop("original")
        driver.wait_ready(driver.start(debug_life(found.original, CHANGE)))
        driver.agent.call("renew", {"lease_s": 0.3})
        container.stop()
    container.start("sleep", "600")
    way.host = replace(way.host, enter=container.enter)
    with open_driver(way) as driver:
        (left,) = driver.agent.call("status").value["sessions"]
        assert (left["session"], left["guard"]) == (bench.package, "dead")
        value = wait_for(lambda: _recover(driver, way), "the end of its lease")
        assert value["left"] == []
        driver.wait_ready(value["server"])
        assert driver.agent.call("status").value["sessions"] == []


def _recover(driver, way: Way):
    try:
        return driver.agent.call("recover", way.session, timeout_s=60).value
    except HostError as error:
        if error.code != "busy":
            raise
        return None


PAIR = "launch: {stop: [...], start: [...]}"


def refused(container: Container, bench: Bench, port: int) -> HostError:
    wait_for((bench.folder / "container.ready").exists, "the server")
    with open_driver(make_way(container, bench, port)) as driver:
        with pytest.raises(HostError) as error:
            driver.begin()
        return error.value


def test_a_server_that_is_the_main_process(container, bench: Bench, port):
    """Refused: its end is that of the container, with everything of ours inside."""
    container.start(*bench.argv("--port", str(port)))
    error = refused(container, bench, port)
    assert (error.code, error.message, error.hints) == (
        "not-restorable",
        "server `kimi` could not be started again as it is: it is process 1 of its container,"
        " which ends with it",
        (f"name the commands that stop and start it, outside of the container: `{PAIR}`",),
    )


def test_a_server_that_the_main_process_waits_for(container, bench: Bench, port):
    """An entry point that is a script ends with the server, and the container with it."""
    line = " ".join(bench.argv("--port", str(port)))
    container.start("sh", "-c", f"{line}; exit 1")
    error = refused(container, bench, port)
    assert (error.code, error.message, error.hints) == (
        "not-restorable",
        "server `kimi` could not be started again as it is: sh -c (pid 1), the main process of"
        " its container, which ends with it, owns it",
        (f"name the commands that stop and start it, outside of the container: `{PAIR}`",),
    )
