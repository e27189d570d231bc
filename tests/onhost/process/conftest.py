"""Small real processes to describe, start and stop; whatever is left of them ends with the test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.onhost.agent.proc import procfs

# Other Pythons than the tests' own; tests use those that are there, their ids name them.
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
OTHER_PYTHONS = {path.parts[-3]: path for path in sorted(PYENV.glob("3.*/bin/python3"))}

# Says that it runs, then does what the test gave it.
HEAD = "import os, signal, socket, subprocess, sys, time\n"
TAIL = "\nopen(os.environ['READY'], 'w').close()\ntime.sleep(60)\n"


def wait_for(fact: Callable[[], Any], what: str = "") -> Any:
    """Poll until `fact` returns something true; 30 s at most."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = fact()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what or fact}")


def key_of(pid: int) -> dict[str, int]:
    """How the protocol names a process that runs now."""
    stat = procfs.read_stat(pid)
    assert stat is not None
    return {"pid": pid, "start_time": stat.start_time}


class Stage:
    """Starts processes and ends them, with everything below them, when the test is over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # where the processes say that they are up
        self._children: list[subprocess.Popen[bytes]] = []
        self._keys: list[dict[str, int]] = []
        self._count = 0

    def spawn(self, code: str, *args: str, **options: Any) -> subprocess.Popen[bytes]:
        """A Python that ran `code` and sleeps now."""
        return self.run([sys.executable, "-c", HEAD + code + TAIL, *args], **options)

    def run(self, argv: list[Any], **options: Any) -> subprocess.Popen[bytes]:
        """Any command that creates the file named in `READY` once it is up."""
        self._count += 1
        ready = self.folder / f"ready{self._count}"
        env = {**os.environ, **options.pop("env", {}), "READY": str(ready)}
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.DEVNULL)
        child = subprocess.Popen(argv, env=env, **options)
        self._children.append(child)
        wait_for(lambda: ready.exists() or child.poll() is not None, f"{argv}")
        self.note(child.pid)
        return child

    def adopt(self, child: subprocess.Popen[bytes]) -> None:
        """Wait for this child, too, when the test is over."""
        self._children.append(child)
        self.note(child.pid)

    def note(self, pid: int) -> None:
        """End this process, and what is below it now, with the test."""
        for stat in procfs.find_tree(pid, procfs.read_all()):
            self._keys.append({"pid": stat.pid, "start_time": stat.start_time})

    def close(self) -> None:
        """End all, by pid and start time."""
        for key in list(self._keys):
            stat = procfs.read_stat(key["pid"])
            if stat is not None and stat.start_time == key["start_time"]:
                self.note(key["pid"])
        for key in self._keys:
            stat = procfs.read_stat(key["pid"])
            if stat is not None and stat.start_time == key["start_time"]:
                with contextlib.suppress(ProcessLookupError):  # it ended just now
                    os.kill(key["pid"], 9)
        for child in self._children:
            child.wait(30)
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage of its own for each test."""
    made = Stage(tmp_path)
    yield made
    made.close()


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that every user may enter; pytest keeps its own ones closed."""
    with tempfile.TemporaryDirectory(prefix="sgldbg-test-") as name:
        os.chmod(name, 0o777)
        yield Path(name)
