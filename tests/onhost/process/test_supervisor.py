"""Who would start a server again, or goes down with it: loops and wrappers told from people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator
from orchestrator.onhost.agent.proc import procfs, supervisor
from orchestrator.onhost.agent.proc.describe import describe

from .conftest import Stage

SERVER = "import os, time; open(os.environ['READY'], 'w').close(); time.sleep(60)"


def describe_below(stage: Stage, tmp_path, text: str, *args: str, name: str = "run.sh"):
    """The description of the server that a script starts, and the script's process."""
    (tmp_path / "serve.py").write_text(SERVER)
    script = tmp_path / name
    script.write_text(text.format(python=sys.executable))
    shell = stage.run(["sh", name, *args], cwd=tmp_path)
    tree = procfs.find_tree(shell.pid, procfs.read_all())
    (server,) = [s for s in tree if b"serve.py" in procfs.read_cmdline(s.pid)]
    return describe(server.pid), shell


@pytest.mark.parametrize(
    "text",
    [
        "while true; do\n  {python} serve.py\n  sleep 5\ndone\n",
        "until {python} serve.py; do :; done; while :; do {python} serve.py; done\n",
        'set -- {python} serve.py\nwhile sleep 0\ndo\n  "$@"\ndone\n',
        "until {python} serve.py; do sleep 5; done\n",
        "while ! {python} serve.py\ndo\n  sleep 5\ndone\n",
    ],
)
def test_a_loop_around_the_server(stage: Stage, tmp_path, text):
    """A shell that starts the server again and again owns it."""
    found, shell = describe_below(stage, tmp_path, text)
    expected = f"a loop of sh run.sh (pid {shell.pid})"
    assert (found["supervisor"], found["why"]) == (expected, f"{expected} owns it")


# Looks at a server that it started itself, as an agent and a server of one job would stand.
BOTH = """
import json, subprocess, sys, time
from orchestrator.onhost.agent.proc.describe import describe
server = subprocess.Popen({argv}, stdin=subprocess.DEVNULL)
try:
    found = describe(server.pid)
    print(json.dumps([found.get("supervisor"), found.get("wrapper")]))
finally:
    server.kill()
    server.wait()
"""


@pytest.mark.parametrize(
    "loop",
    [
        'while :; do "$@"; break; done',
        "until sh -c '{python} both.py'; do echo serve.py failed; done",
        "for n in 1 2; do\n  while [ $n = 1 ]; do {python} both.py; n=2; done\ndone",
    ],
)
def test_a_loop_around_server_and_agent(tmp_path: Path, loop: str):
    """Whatever runs us as well runs the machine's job, and is no supervisor of the server."""
    (tmp_path / "serve.py").write_text("import time; time.sleep(60)")
    (tmp_path / "both.py").write_text(BOTH.format(argv=[sys.executable, "serve.py"]))
    done = subprocess.run(
        ["bash", "-c", loop.format(python=sys.executable), "job", sys.executable, "both.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(orchestrator.__file__).parents[1]), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[0]) == [None, None]


@pytest.mark.parametrize("body", ['"$@"', "sh job.sh", "echo; ./job.sh"])
def test_a_loop_around_what_starts_the_server(stage: Stage, tmp_path, body: str):
    """The loop may know only the script that leads to the server."""
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\n{sys.executable} serve.py\ntrue\n")
    (tmp_path / "job.sh").chmod(0o755)
    text = f"while sleep 0; do {body}; done\n"
    found, shell = describe_below(stage, tmp_path, text, "sh", "job.sh")
    assert found["supervisor"] == f"a loop of sh run.sh (pid {shell.pid})"


@pytest.mark.parametrize(
    "text",
    [
        "{python} serve.py\necho done\n",
        "n=0; while [ $n -lt 3 ]; do n=$((n+1)); done\n{python} serve.py\necho $n\n",
    ],
)
def test_a_wrapper_that_waits(stage: Stage, tmp_path, text):
    """A script that only waits for its server is told, since it is not started again with it."""
    found, shell = describe_below(stage, tmp_path, text)
    assert "supervisor" not in found
    assert found["wrapper"] == f"sh run.sh (pid {shell.pid})"
    assert found["restorable"] is True


def test_a_wrapper_that_became_the_server(stage: Stage, tmp_path):
    """`exec` leaves nobody between the server and whoever called the script."""
    (tmp_path / "run.sh").write_text(f"cd {tmp_path}\nexec {sys.executable} serve.py\n")
    (tmp_path / "serve.py").write_text(SERVER)
    child = stage.run(["sh", str(tmp_path / "run.sh")])
    assert describe(child.pid)["argv"] == [sys.executable, "serve.py"]


def test_a_shell_in_which_somebody_types(stage: Stage, tmp_path):
    """What was started from a prompt has no wrapper; the shell lives on without it."""
    (tmp_path / "serve.py").write_text(SERVER)
    person, terminal = os.openpty()
    try:
        os.write(person, f"{sys.executable} serve.py </dev/null; echo\n".encode())
        shell = stage.run(["sh"], cwd=tmp_path, stdin=terminal, start_new_session=True)
        server = procfs.find_tree(shell.pid, procfs.read_all())[-1]
        found = describe(server.pid)
        assert (found.get("supervisor"), found.get("wrapper")) == (None, None)
    finally:
        os.close(person)
        os.close(terminal)


ROOTS_OWN = "0::/user.slice/user-0.slice/user@0.service/app.slice/llm.service"
MACHINES = "0::/system.slice/llm.service"
SHOW = "--no-ask-password show --property=MainPID -- llm.service\n"
NAMELESS = "0::/user.slice/user-4242.slice/user@4242.service/app.slice/llm.service"


@pytest.mark.skipif(os.geteuid() != 0, reason="which manager is asked depends on who asks: root")
@pytest.mark.parametrize(
    ("cgroup", "script", "asked", "owned", "manager"),
    [
        (MACHINES, "echo MainPID=$SERVER", SHOW, "systemd unit llm.service owns it", None),
        (MACHINES, "echo MainPID=0", SHOW, "systemd unit llm.service owns it", None),
        (MACHINES, "echo MainPID=1", SHOW, None, None),
        (
            MACHINES,
            "echo Failed to connect to bus: No such file >&2; exit 1",
            SHOW,
            "systemd unit llm.service may own it, which nobody says: Failed to connect to bus: No"
            " such file",
            None,
        ),
        (
            ROOTS_OWN,
            "echo MainPID=$SERVER",
            f"--user {SHOW}",
            "systemd unit llm.service of root's own manager owns it",
            "root",
        ),
        (ROOTS_OWN, "echo MainPID=1", f"--user {SHOW}", None, None),
        (
            NAMELESS,
            "echo MainPID=1",
            "",
            "systemd unit llm.service of 4242's own manager may own it, which nobody says: another"
            " user's manager does not answer us",
            "4242",
        ),
    ],
)
def test_a_unit_that_runs_the_server(
    stage: Stage, tmp_path: Path, monkeypatch, cgroup, script, asked, owned, manager
):
    """The manager that runs a unit is asked whether that started the server; silence is told."""
    server = stage.spawn("")
    tool = tmp_path / "systemctl"
    tool.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n{script}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SERVER", str(server.pid))
    monkeypatch.setattr(supervisor, "read_cgroups", lambda pid: [cgroup])
    monkeypatch.setattr(supervisor, "read_own", lambda: ["0::/"])
    found = describe(server.pid)
    said = tmp_path / "asked"
    assert (said.read_text() if said.exists() else "") == asked
    unit = None if owned is None else "llm.service"
    kind = {"kind": "unit", "program": None, "unit": unit, "manager": manager}
    assert (found["why"], found.get("owner")) == (owned or "", kind if owned else None)
