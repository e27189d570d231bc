"""Hosts that refuse before anything is changed, where it takes more than a wrong line to show."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bad_input.conftest import Run
from tests.bad_input.project import Project, check

PYTHON_2 = Path("~/.pyenv/versions/2.7.18/bin/python").expanduser()
_WAIT_S = 30.0


def test_host_key_changed(project: Project, sgldbg: Run) -> None:
    """A host that shows another key than the one known of it is not talked to."""
    known = (project.cluster.workdir / "keys" / "known_hosts").read_text().splitlines()
    (name_0, *key_0), (name_1, *key_1) = (line.split() for line in known)
    path = project.folder / "known_hosts"
    path.write_text(f"{' '.join([name_0, *key_1])}\n{' '.join([name_1, *key_0])}\n")
    project.replace(
        "inventory.yaml", str(project.cluster.workdir / "keys" / "known_hosts"), str(path)
    )

    ran = sgldbg(project, "plan", "session.yaml")

    check(ran, "host-key-changed", 5)


def test_host_key_of_another_type(project: Project, sgldbg: Run) -> None:
    """A host that is known by another type of key than it has is not said to have changed."""
    path = project.cluster.workdir / "keys" / "known_hosts"
    (name_0, kind, _), second = (line.split() for line in path.read_text().splitlines())
    other = {"ssh-ed25519": "ssh-rsa"}.get(kind, "ssh-ed25519")
    mine = project.folder / "known_hosts"
    mine.write_text(f"{name_0} {other} {second[2]}\n{' '.join(second)}\n")
    project.replace("inventory.yaml", str(path), str(mine))
    project.words |= {kind: "<its type>", other: "<other type>"}

    ran = sgldbg(project, "plan", "session.yaml")

    check(ran, "host-key-other-type", 5)


def test_symlink_out_of_the_install(project: Project, sgldbg: Run) -> None:
    """A file that leads out of the install is not even read."""
    models = project.cluster.hosts[0].site / "sglang" / "srt" / "models"
    secret = project.cluster.hosts[0].home / "secret.py"
    secret.write_text("key = 1\n")
    link = models / "llama_link.py"
    link.symlink_to(secret)
    try:
        project.replace("patches/eagle3-draft-input.yaml", "llama_eagle3.py", "llama_link.py")
        ran = sgldbg(project, "plan", "session.yaml")
    finally:
        link.unlink()
        secret.unlink()

    check(ran, "symlink-leaves-install", 5)


@pytest.mark.skipif(not PYTHON_2.exists(), reason=f"there is no Python 2 at {PYTHON_2}")
def test_interpreter_is_python_2(project: Project, sgldbg: Run) -> None:
    """An interpreter that is too old is named with its version."""
    project.replace("inventory.yaml", f'python: "{sys.executable}"', f"python: {PYTHON_2}")
    project.words[str(PYTHON_2)] = "<python 2>"

    ran = sgldbg(project, "plan", "session.yaml")

    check(ran, "interpreter-python-2", 5)


@contextmanager
def running(folder: Path, words: Sequence[str], times: int, stdout: int) -> Iterator[None]:
    """Processes with the command line of a server, which do nothing."""
    package = folder / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text("import sys\nsys.stdin.read()\n")
    children = [
        subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(folder)},
            cwd=folder,
        )
        for _ in range(times)
    ]
    try:
        until = time.monotonic() + _WAIT_S
        wanted = "\0".join(words).encode() + b"\0"
        for child in children:
            while Path(f"/proc/{child.pid}/cmdline").read_bytes() != wanted:
                assert time.monotonic() < until
        yield
    finally:
        for child in children:
            child.communicate()


def write_server(project: Project, words: Sequence[str]) -> None:
    """Make the inventory's server one that is started by these words on the first host."""
    path = project.folder / "inventory.yaml"
    head, _, _ = path.read_text().partition("servers:")
    command = ", ".join(f'"{word}"' for word in words)
    path.write_text(
        f"{head}servers:\n  miniature:\n    install: miniature\n    hosts: [demo-0]\n"
        f"    launch: {{command: [{command}]}}\n    url: http://127.0.0.1:{words[-1]}\n"
    )


def test_two_servers_match(project: Project, sgldbg: Run) -> None:
    """Of two equal servers none is taken at a guess."""
    words = [sys.executable, "-m", "sglang.launch_server", "--port", project.fill("{free port}")]
    write_server(project, words)

    with running(project.folder, words, 2, subprocess.DEVNULL):
        ran = sgldbg(project, "plan", "session.yaml")

    check(ran, "two-servers-match", 5)


def test_output_cannot_be_given_back(project: Project, sgldbg: Run) -> None:
    """A server that writes to a pipe is refused before it is stopped, not after."""
    words = [sys.executable, "-m", "sglang.launch_server", "--port", project.fill("{free port}")]
    write_server(project, words)

    with running(project.folder, words, 1, subprocess.PIPE):
        ran = sgldbg(project, "run", "session.yaml")

    check(ran, "output-not-restorable", 5)
