"""Who waits for a server: what ends with it is a wrapper, what may start it again owns it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orchestrator.agent.bootstrap import make_command
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.proc.above import programs
from orchestrator.onhost.agent.proc.describe import describe
from orchestrator.onhost.agent.session.guard import make_commands

from .conftest import Stage, wait_for

SERVER = "import os, time; open(os.environ['READY'], 'w').close(); time.sleep(60)"
# Played by a script: it waits for the one command that follows its options, and ends with it.
WAITS = """import subprocess, sys
words = sys.argv[1:]
sys.exit(subprocess.call(words[words.index("--") + 1:]))
"""
AGAIN = """import subprocess, sys
while True:
    subprocess.call([sys.executable, "-IS", "serve.py"])
"""
MAY = "{} (pid N) waits for it and may start it again"
LOOP = "a loop of {} (pid N) owns it"


class Case(NamedTuple):
    """A command, the text of `run.sh` or of another file, and what then stands in the way."""

    command: str
    text: str
    why: str


# `S` is the server's command line, `P` the interpreter.
REFUSED = {
    "for": Case("sh run.sh", "for n in 1 2 3; do S; done", LOOP.format("sh run.sh")),
    "a function that calls itself": Case(
        "sh run.sh", "serve() { S; serve; }\nserve", MAY.format("sh run.sh")
    ),
    "a variable": Case("sh run.sh", "C='S'\nwhile $C; do :; done", LOOP.format("sh run.sh")),
    "an array": Case(
        "bash run.sh", 'A=(S)\nwhile :; do "${A[@]}"; done', LOOP.format("bash run.sh")
    ),
    "itself again": Case("sh run.sh", 'S\nexec sh "$0" "$@"', MAY.format("sh run.sh")),
    "a trap": Case("bash run.sh", "trap 'S' EXIT\nS\n:", MAY.format("bash run.sh")),
    "eval": Case("sh run.sh", "eval 'while :; do S; done'", MAY.format("sh run.sh")),
    "it ends others": Case("sh run.sh", "sleep 60 & S\nkill $!", MAY.format("sh run.sh")),
    "from its input": Case("bash <run.sh", "while :; do S; done", LOOP.format("bash < run.sh")),
    "from the input of dash": Case(
        "sh <run.sh", "while :; do S </dev/null; done", LOOP.format("sh < run.sh")
    ),
    "from a pipe": Case("cat run.sh | bash -s; :", "while :; do S; done", MAY.format("bash")),
    "options with values": Case(
        "bash -euo pipefail -c 'while :; do S; done'", "", LOOP.format("bash -c")
    ),
    "below what only waits": Case(
        "sh run.sh", "while :; do timeout 60 S; done", LOOP.format("sh run.sh")
    ),
    "a Python": Case("P watch.py", AGAIN, MAY.format("P watch.py")),
    "supervisord": Case("P bin/supervisord -- S", WAITS, "supervisord (pid N) owns it"),
    "circusd": Case("P -m bin.circusd -- S", WAITS, "circusd (pid N) owns it"),
    "honcho": Case("P bin/honcho -- S", WAITS, MAY.format("P bin/honcho")),
    "restarts of torchrun": Case(
        "P bin/torchrun --max-restarts=3 -- S", WAITS, MAY.format("P bin/torchrun")
    ),
    "xargs": Case("echo serve.py | xargs P -IS; :", "", MAY.format("xargs")),
}
# What waits for the server then; nothing where it has become the server.
ADOPTED = {
    "to the end": Case("sh run.sh", ". ./env.sh\nS\necho $?\nexit 1\nS", "sh run.sh"),
    "one of two": Case("sh run.sh", "if :; then S; else S --other; fi", "sh run.sh"),
    "left and waited for": Case(
        "bash run.sh", "for n in 1; do S >/dev/null & done\nwait", "bash run.sh"
    ),
    "watched without a start": Case(
        "bash run.sh", "S & pid=$!\nwhile kill -0 $pid; do sleep 1; done\necho over", "bash run.sh"
    ),
    "cleans up": Case(
        "bash run.sh", 'trap "rm -f x" EXIT\nmain() { S "$@"; }\nmain\n:', "bash run.sh"
    ),
    "from its input": Case("bash <run.sh", "S\n:", "bash < run.sh"),
    "a copy of the shell": Case("bash run.sh", "( S; : ) &\nwait", "bash run.sh"),
    "time": Case("/usr/bin/time S", "", "time"),
    "timeout": Case("timeout 60 S", "", "timeout"),
    "setsid": Case("setsid --wait S", "", ""),
    "stdbuf": Case("stdbuf -oL env A=1 S", "", ""),
    "flock": Case("flock serve.py S", "", "flock"),
    "strace": Case("strace -o trace S", "", "strace"),
    "su": Case("su -s /bin/sh -c 'S; :' root", "", "sh -c"),
    "runuser": Case("runuser -u root -- S", "", "runuser"),
    "uv": Case("P bin/uv run -- S", WAITS, "P bin/uv"),
    "conda": Case("P bin/conda run -n x -- S", WAITS, "P bin/conda"),
    "torchrun": Case("P bin/torchrun --max-restarts 0 -- S", WAITS, "P bin/torchrun"),
    "accelerate": Case(
        "P -m bin.accelerate launch -- S", WAITS, "P -m bin.accelerate"
    ),
    "an init": Case("P bin/tini -s -- sh run.sh", "S; exit 1", "sh run.sh"),
}  # fmt: skip
AS_ROOT = ("su", "runuser")


def fill(text: str) -> str:
    """An expectation with the name that the interpreter has here."""
    return re.sub(r"\bP\b", Path(sys.executable).name, text)


def start(stage: Stage, folder: Path, case: Case) -> tuple[dict[str, Any], list[int]]:
    """The description of the server that this command leads to, and who is above it."""
    server = f"{sys.executable} -IS serve.py"
    command, text = case.command, case.text
    for old, new in ((r"\bS\b", server), (r"\bP\b", sys.executable)):
        command, text = (re.sub(old, new, one) for one in (command, text))
    (folder / "serve.py").write_text(SERVER)
    (folder / "env.sh").write_text("A=1")
    (folder / "bin").mkdir()
    (folder / "bin/__init__.py").touch()
    script = re.search(r"bin[./](\w+)", case.command)
    name = f"bin/{script[1]}{'.py' if ' -m ' in command else ''}" if script else "watch.py"
    (folder / name).write_text(WAITS if script else AGAIN)
    (folder / "run.sh").write_text("true\n" + text)
    child = stage.run(["bash", "-c", f"exec {command}" if ";" not in command else command],
                      cwd=folder)  # fmt: skip
    stats = procfs.read_all()
    tree = procfs.find_tree(child.pid, stats)
    (pid,) = (s.pid for s in tree if procfs.read_cmdline(s.pid).endswith(b"serve.py\0")
              and procfs.read_cmdline(s.pid).split(b"\0")[1] == b"-IS")  # fmt: skip
    return describe(pid), [stat.pid for stat in procfs.find_ancestors(pid, stats)]


@pytest.fixture(autouse=True)
def _needs(request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params.get("name") if hasattr(request.node, "callspec") else None
    if name in AS_ROOT and os.geteuid():
        pytest.skip("only root can become somebody else")
    if name in ("strace", "time") and shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    trace = ["strace", "-o", os.devnull, "true"]
    if name == "strace" and subprocess.run(trace, timeout=30, check=False).returncode:
        pytest.skip("nobody may be traced here")


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_start_a_server_again(stage: Stage, tmp_path: Path, name: str):
    """It is named, and the server is not adopted."""
    found, above = start(stage, tmp_path, REFUSED[name])
    assert re.sub(r"pid \d+", "pid N", found["why"]) == fill(REFUSED[name].why)
    (pid,) = re.findall(r"pid (\d+)", found["why"])
    assert int(pid) in above
    assert found["why"].startswith(found["supervisor"])


@pytest.mark.parametrize("name", ADOPTED)
def test_what_ends_with_a_server(stage: Stage, tmp_path: Path, name: str):
    """It stands in nobody's way; what is no more after the server's stop is told."""
    found, _ = start(stage, tmp_path, ADOPTED[name])
    assert (found["why"], found.get("supervisor")) == ("", None)
    assert found.get("wrapper", "").partition(" (pid")[0] == fill(ADOPTED[name].why)


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        ("S </dev/null", None),
        ("while :; do S </dev/null; done", None),  # nobody can read what was typed
        ("(S </dev/null; echo over) &", MAY.format("bash")),
    ],
)
def test_what_somebody_typed(stage: Stage, tmp_path: Path, line: str, owner: str | None):
    """A prompt waits for nothing; a part of it that lives on in the background may be a loop."""
    (tmp_path / "serve.py").write_text(SERVER)
    person, terminal = os.openpty()
    try:
        line = re.sub(r"\bS\b", f"{sys.executable} -IS serve.py", line)
        os.write(person, f"{line}\n".encode())
        words = ["bash", "--norc", "--noprofile", "-i"]
        shell = stage.run(words, cwd=tmp_path, stdin=terminal, start_new_session=True)
        server = procfs.find_tree(shell.pid, procfs.read_all())[-1]
        why = describe(server.pid).get("owned")
        assert (why and re.sub(r"pid \d+", "pid N", why)) == owner
    finally:
        os.close(person)
        os.close(terminal)


def test_what_took_in_an_orphan(stage: Stage, tmp_path: Path):
    """A program that takes in whose parents have ended did not start them."""
    (tmp_path / "serve.py").write_text(SERVER)
    code = "import ctypes; ctypes.CDLL(None).prctl(36, 1)\n"  # PR_SET_CHILD_SUBREAPER
    code += "words = ['setsid', 'sh', '-c', sys.argv[1] + ' -IS serve.py & :']\n"
    code += "subprocess.Popen(words).wait()\n"
    child = stage.spawn(code, sys.executable, cwd=tmp_path)
    tree = wait_for(lambda: _find_server(child.pid), "the server")
    found = describe(tree)
    assert (found["why"], found.get("wrapper")) == ("", None)


def _find_server(root: int) -> int | None:
    """The server below this process, once it is its child."""
    for stat in procfs.find_tree(root, procfs.read_all())[1:]:
        if procfs.read_cmdline(stat.pid).endswith(b"-IS\0serve.py\0") and stat.ppid == root:
            return stat.pid
    return None


def test_our_own_programs_are_known(tmp_path: Path):
    """Agents and guards that started a server for somebody's session do not own it."""
    finder = make_command()
    (code,) = re.findall(r'-c "([^"]+)"', str(finder))
    (guard,) = make_commands(str(tmp_path), [])
    for argv in (["/usr/bin/python3", "-IS", "-c", code, "x"], guard):
        assert programs.Program(argv, frozenset()).is_holder
    assert not programs.Program(["python", "-c", "import sgldbg"], frozenset()).is_holder
