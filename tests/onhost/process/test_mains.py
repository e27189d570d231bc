"""Main processes of servers are told from workers, wrappers and everything else."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.onhost.agent.proc import commandline, procfs, tree
from orchestrator.onhost.agent.proc.describe import describe
from orchestrator.onhost.agent.server import process

from .conftest import Stage, key_of, wait_for
from .test_describe import RENAME

PY = "/venv/bin/python3"


@pytest.mark.parametrize(
    "argv",
    [
        [PY, "-m", "sglang.launch_server", "--port", "1"],
        ["python", "-u", "-m", "sglang.launch_server"],
        ["python3.12", "-um", "sglang.launch_server"],
        ["python", "-X", "faulthandler", "-W", "ignore", "-msglang.launch_server"],
        [PY, "/venv/bin/sglang", "serve", "--model-path", "x"],
        [PY, "/src/python/sglang/launch_server.py", "--port", "1"],
        ["python", "sglang/launch_server.py"],
        ["python", "-m", "sglang.cli.main", "serve"],
        ["python", "-m", "sglang", "serve"],
    ],
)
def test_command_lines_of_main_processes(argv):
    """Every documented way to start the server, with options of the interpreter before it."""
    assert commandline.is_main(argv, "/usr/bin/python3.11", "/src/python", "sglang")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["bash", "-c", "python -m sglang.launch_server"],
        ["numactl", "-m", "0", "python", "-m", "sglang.launch_server"],
        ["python", "-m", "sglang_router.launch_server"],
        ["python", "-m", "sglang.bench_serving"],
        ["python", "-m", "sglang", "check_env"],
        [PY, "/venv/bin/sglang", "version"],
        ["python", "wrapper.py", "-m", "sglang.launch_server"],
        ["python", "-c", "x", "-m", "sglang.launch_server"],
        ["python", "/elsewhere/launch_server.py"],
        ["python", "-X"],
        ["python"],
    ],
)
def test_command_lines_of_something_else(argv):
    """Wrappers that wait hold the server's words too; they are not the server."""
    executable = "/usr/bin/" + (os.path.basename(argv[0]) if argv else "x")
    assert not commandline.is_main(argv, executable, "/src", "sglang")


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        ([PY, "-u", "-m", "sgl.launch", "--api-key", "x"], "python3 -m sgl.launch"),
        ([PY, "/venv/bin/sglang", "serve", "--api-key", "x"], "python3 /venv/bin/sglang"),
        ([PY, "-c", "print('x')"], "python3 -c"),
        ([PY], PY),
        ([PY, "-V"], "python3"),
        (["/usr/bin/curl", "-H", "Authorization: x"], "curl"),
        (["sglang::scheduler_TP0"], "sglang::scheduler_TP0"),
        (["nginx: worker process"], "nginx: worker process"),
    ],
)  # fmt: skip
def test_programs_are_named_without_arguments(argv, name):
    """What is shown of a foreign process holds none of its secrets."""
    assert commandline.name_program(argv) == name


@pytest.fixture
def package(tmp_path: Path) -> str:
    """A package of its own, so that no other test's server is found."""
    name = f"sgl{os.getpid()}_{abs(hash(str(tmp_path))) % 10**8}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "launch_server.py").write_text(
        "import os, subprocess, sys, time\n"
        "if '--fork' in sys.argv and os.fork() == 0:\n"
        "    time.sleep(60)\n"
        "if '--spawn' in sys.argv:\n"
        "    code = 'from multiprocessing.spawn import spawn_main; import time; time.sleep(60)'\n"
        "    subprocess.Popen([sys.executable, '-c', code])\n"
        "if sys.argv[1:2] == ['serve']:\n"
        "    words = [sys.executable, '-m', os.environ['SERVES'], *sys.argv[2:]]\n"
        "    sys.exit(subprocess.call(words))\n"
        "if '--title' in sys.argv:\n"
        "    exec(os.environ['RENAME'])\n"
        "open(os.environ['READY'], 'w').close()\n"
        "time.sleep(60)\n"
    )
    return name


def test_one_server_is_found_once(stage: Stage, tmp_path, package):
    """A forked copy of the main process and a shell that waits for it are left out."""
    argv = [sys.executable, "-m", package + ".launch_server", "--fork", "--port", "30000"]
    line = " ".join(argv) + "; true"
    shell = stage.run(["bash", "-c", line], cwd=tmp_path)
    below = procfs.find_tree(shell.pid, procfs.read_all())
    assert len(below) == 3
    (found,) = process.find_mains(package)
    assert (found["pid"], found["argv"], found["cwd"]) == (below[1].pid, argv, str(tmp_path))
    assert found["restorable"] is True
    assert process.find_mains(package + "x") == []


def find_by_port(package: str) -> dict[str, Any]:
    return {row["given"]["values"]["port"]: row for row in process.find_mains(package)}


def both(package: str) -> dict[str, Any] | None:
    """Both servers of the script below, once they run what they are."""
    found = find_by_port(package)
    return found if sorted(found) == ["30001", "30002"] else None


def test_a_server_below_another_one(stage: Stage, tmp_path, package):
    """`B & exec A` makes B a child of A: it is a server, and A cannot go without it."""
    line = " ".join([sys.executable, "-m", package + ".launch_server", "--spawn", "--port"])
    text = f"{line} 30002 --fork & tail -f /dev/null & exec {line} 30001"
    upper = stage.run(["bash", "-c", text], cwd=tmp_path)
    found = wait_for(lambda: both(package), "both servers")
    wait_for(lambda: len(procfs.find_tree(upper.pid, procfs.read_all())) == 6, "all workers")
    stage.note(upper.pid)
    (tail,) = (s.pid for s in procfs.read_all().values() if (s.ppid, s.comm) == (upper.pid, "tail"))
    lower = found["30002"]["pid"]
    name = f"{os.path.basename(sys.executable)} -m {package}.launch_server"
    strangers = [f"another server, {name} (pid {lower})", f"tail (pid {tail})"]
    assert found["30001"]["pid"] == upper.pid
    assert found["30001"]["why"] == f"it would take along {strangers[0]} and {strangers[1]}"
    assert found["30001"]["strangers"] == strangers
    assert (found["30002"]["why"], found["30002"]["wrapper"]) == ("", None)

    theirs = procfs.find_tree(lower, procfs.read_all())
    known = describe(upper.pid)
    assert not {stat.pid for stat in theirs} & {pid for pid, _ in known["tree"]}
    ended = tree.kill(tree.Tree(key_of(upper.pid), None, known["tree"]))
    assert len(ended) == 3
    assert all(process.is_alive(stat.pid, stat.start_time) for stat in theirs)
    assert list(find_by_port(package)) == ["30002"]


WRITES = "open('beside', 'w').close()"
FORKS = (
    "import time; from multiprocessing import Process as P;"
    f" P(target=time.sleep, args=(60,)).start(); {WRITES}"
)


@pytest.mark.parametrize(
    ("beside", "count"),
    [
        ("touch beside; exec tail -f /dev/null", 1),
        ("READY=beside exec SERVER --port 30002 --spawn", 2),
        (f'PYTHON -c "import time; {WRITES}; time.sleep(60)"', 1),
        (f'PYTHON -c "{FORKS}"', 2),
        ("touch beside; while :; do sleep 60; done", 2),
    ],
)
def test_what_was_put_beside_a_server(stage: Stage, tmp_path, package, beside: str, count: int):
    """What shares the server's process group is not its own for that, and outlives it."""
    argv = [sys.executable, "-m", package + ".launch_server"]
    text = beside.replace("SERVER", shlex.join(argv)).replace("PYTHON", sys.executable)
    line = f"({text} &) ; until test -e beside; do sleep 0.02; done; exec {shlex.join(argv)}"
    server = stage.run(["setsid", "bash", "-c", line], cwd=tmp_path)
    others = [s for s in procfs.read_all().values() if s.sid == server.pid != s.pid]
    for stat in others:
        stage.note(stat.pid)
    known = describe(server.pid)
    assert (known["tree"], known["why"]) == ([[server.pid, known["start_time"]]], "")
    process.stop(key_of(server.pid), None, 20, None, known)
    assert len(others) == count
    assert all(process.is_alive(stat.pid, stat.start_time) for stat in others)


@pytest.mark.parametrize(
    ("beside", "name"),
    [
        ("while :; do sleep 60; done", "bash"),
        ('PYTHON -c "import time; time.sleep(60)"', f"{os.path.basename(sys.executable)} -c"),
    ],
)
def test_what_a_server_was_given_as_a_child(stage: Stage, tmp_path, package, beside, name):
    """SGLang ends it with its workers, and nobody would start it again."""
    argv = [sys.executable, "-m", package + ".launch_server"]
    text = beside.replace("PYTHON", sys.executable)
    server = stage.run(["bash", "-c", f"{text} & exec {shlex.join(argv)}"], cwd=tmp_path)
    child = next(s for s in procfs.read_all().values() if s.ppid == server.pid)
    assert describe(server.pid)["why"] == f"it would take along {name} (pid {child.pid})"


@pytest.mark.parametrize("port", [[], ["--port", "30000"]])
def test_a_server_that_starts_another_to_do_its_work(stage: Stage, tmp_path, package, port):
    """The outer one is the server, whichever of the two says where it listens."""
    argv = [sys.executable, "-m", package, "serve", *port]
    (tmp_path / package / "__main__.py").write_text(
        f"import runpy; runpy.run_module('{package}.launch_server', run_name='__main__')\n"
    )
    served = {"SERVES": package + ".launch_server"}
    outer = stage.run(argv, cwd=tmp_path, env=served)
    assert len(procfs.find_tree(outer.pid, procfs.read_all())) == 2
    (found,) = process.find_mains(package)
    assert (found["pid"], found["why"]) == (outer.pid, "")


def test_wrappers_that_exec(stage: Stage, tmp_path, package):
    """taskset and nohup become the server, which is found as itself, oldest server first."""
    argv = [sys.executable, "-m", package + ".launch_server"]
    first = stage.run(["taskset", "-c", "0", *argv], cwd=tmp_path)
    second = stage.run(["nohup", *argv], cwd=tmp_path)
    found = process.find_mains(package)
    assert [item["pid"] for item in found] == [first.pid, second.pid]
    assert [item["argv"] for item in found] == [argv, argv]


def test_a_renamed_main_process(stage: Stage, tmp_path, package):
    """The server that overwrote its command line is found, with the reason why it is refused."""
    rename = RENAME.replace("sglang::", package + "::")
    argv = [sys.executable, "-m", package + ".launch_server", "--title"] + ["padding"] * 9
    child = stage.run(argv, cwd=tmp_path, env={"RENAME": rename})
    (found,) = wait_for(lambda: process.find_mains(package), "the renamed server")
    assert found["pid"] == child.pid
    assert found["argv"] == [package + "::http_server/tokenizer_manager"]
    assert found["why"] == "it has overwritten its own command line with a title"
