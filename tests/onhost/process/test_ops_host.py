"""The ops that change nothing, as the loop calls them, and under every Python that hosts have."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.ops_host import OPS

from .conftest import OTHER_PYTHONS, Stage, key_of, wait_for
from .test_stop import CHILD, LISTEN
from .test_tail import Frames

AGENT = Path(__file__).resolve().parents[3] / "orchestrator" / "onhost" / "agent"
PYTHONS = {
    "system": Path("/usr/bin/python3"),
    **{n: path for n, path in OTHER_PYTHONS.items() if not n.startswith(("3.6.", "3.7."))},
}


@pytest.fixture
def context(tmp_path) -> Context:
    made = Context(str(tmp_path / "state"))
    made.writer = Frames()
    return made


def call(context: Context, op: str, **args):
    """One op; its value has to pass through JSON as it does on the wire."""
    value, raw = OPS[op](context, args, b"")
    return json.loads(json.dumps(value)), raw


def test_hello(context):
    """Who answers, on which boot of which machine, at which time of its clock."""
    value, raw = call(context, "hello")
    assert raw == b""
    assert (value["protocol"], value["pid"], value["uid"]) == (1, os.getpid(), os.getuid())
    assert value["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert value["state_dir"] == context.state_dir
    assert abs(value["now_s"] - time.clock_gettime(time.CLOCK_BOOTTIME)) < 10
    assert value["python"] == list(sys.version_info[:3])
    assert {"user", "hostname", "executable", "tmp_dir", "home"} < set(value)


def test_life_of_a_tree(context, stage: Stage, tmp_path):
    """The tree, whether it listens, and that a child which listens is part of it."""
    listen = f"import sys,socket; sys.argv=['', {str(tmp_path / 'port')!r}]" + LISTEN
    child = stage.spawn(CHILD + f"made = child({listen!r})")
    wait_for(lambda: (tmp_path / "port").exists() and (tmp_path / "port").read_text(), "the port")
    port = int((tmp_path / "port").read_text())
    value, _ = call(context, "life", **key_of(child.pid), port=port)
    assert (value["alive"], value["owns_port"]) == (True, True)
    assert (value["exit"], value["owner"], value["ports"]) == (None, None, [])
    main, worker = value["processes"]
    assert (main["pid"], worker["ppid"]) == (child.pid, child.pid)
    assert worker["title"] == os.path.basename(sys.executable) + " -c"
    assert call(context, "life", **key_of(worker["pid"]), port=None)[0]["ports"] == [port]


def test_life_beside_a_foreign_server(context, stage: Stage):
    """A port of somebody else's is not ours, and its owner is named; so before anything runs."""
    child = stage.spawn("")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        value, _ = call(context, "life", **key_of(child.pid), port=port)
        nobody, _ = call(context, "life", pid=None, start_time=None, port=port)
    assert (value["alive"], value["owns_port"]) == (True, False)
    assert value["owner"].startswith(f"process {os.getpid()} (")
    assert (nobody["alive"], nobody["owner"]) == (False, value["owner"])
    free, _ = call(context, "life", pid=None, start_time=None, port=port)
    assert (free["owner"], free["processes"]) == (None, [])


def test_life_after_the_end(context, stage: Stage):
    """A process that ended is not alive; how it ended is told where it was our child."""
    child = stage.spawn("")
    key = key_of(child.pid)
    os.kill(child.pid, 9)
    wait_for(lambda: not call(context, "life", **key, port=None)[0]["alive"], "the end")
    assert call(context, "life", **key, port=None)[0]["exit"] == "signal 9 (SIGKILL)"
    child.wait(30)
    assert call(context, "life", **key, port=None)[0]["exit"] is None


def test_files_on_the_wire(context, tmp_path):
    """Follow, credit, unfollow, tail and spools through the table of ops."""
    (tmp_path / "log").write_bytes(b"one\ntwo\n")
    (tmp_path / "7.jsonl").write_bytes(b"{}\n")
    path = str(tmp_path / "log")
    assert call(context, "tail", path=path, lines=1) == (None, b"two\n")
    assert call(context, "follow", stream=3, path=path, offset=0, credit=4) == (None, b"")
    assert call(context, "credit", stream=3, bytes=100) == (None, b"")
    assert call(context, "unfollow", stream=3, drain=True) == (None, b"")
    assert context.writer.until_end(3)[0] == b"one\ntwo\n"
    value, raw = call(context, "read-spool", dir=str(tmp_path), offsets={})
    assert (value, raw) == ({"files": [{"name": "7.jsonl", "offset": 0, "size": 3}]}, b"{}\n")


def test_an_install_on_the_wire(context, tmp_path):
    """Locate, observe and check-code through the table of ops."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_bytes(b"x = (\n")
    env = {"PYTHONPATH": str(tmp_path)}
    found, _ = call(context, "locate", python=sys.executable, package="pkg", pid=None, env=env)
    assert (found["root"], found["package_version"]) == (str(tmp_path), None)
    names = ["pkg/__init__.py"]
    value, raw = call(context, "observe", root=found["root"], package="pkg", files=names)
    assert (value["files"][0]["size"], raw) == (6, b"x = (\n")
    asked = {"python": sys.executable, "files": [{"file": names[0], "size": 6}]}
    checked, _ = OPS["check-code"](context, asked, raw)
    error = "SyntaxError: '(' was never closed (line 1)"
    assert checked == {"files": [{"file": names[0], "error": error}]}
    nobodys = f"pkg{os.getpid()}_of_{tmp_path.name}"
    assert call(context, "find-servers", package=nobodys) == ([], b"")


ROUND_TRIP = """
import json, os, sys, time
from sgldbg_agent import ops_host
from sgldbg_agent.look import locate
from sgldbg_agent.server import process
made = {"argv": [sys.executable, "-c", "import time; time.sleep(60)"], "cwd": "/"}
key = process.start(made, None, None, env_set={"A": "1"}, session="x")
before = process.describe(key["pid"])
done = process.stop(key, "x", 10, None)
assert (done["stopped"], done["killed"], done["left"]) == ([key["pid"]], [], []), done
again = process.start(json.loads(json.dumps(before)), None, None)
differences = process.compare(before, again["pid"])
os.kill(again["pid"], 9)
assert differences == [], differences
assert not [m for m in process.find_mains("no-such-package")]
checked = locate.check_code(sys.executable, [{"file": "a", "size": 3}], b"x=(")
assert checked[0]["error"].startswith("SyntaxError: "), checked
found = locate.locate(sys.executable, "sgldbg_agent", None, {}, os.getcwd())
assert found["package_dir"] == os.path.join(os.getcwd(), "sgldbg_agent"), found
print("round trip done", len(ops_host.OPS))
"""


@pytest.mark.parametrize("python", PYTHONS.values(), ids=PYTHONS)
def test_every_python_of_hosts(python, tmp_path):
    """Under each Python >= 3.8 that is found here (the ids name them) a server goes round."""
    shutil.copytree(AGENT, tmp_path / "sgldbg_agent", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [python, "-W", "error", "-c", ROUND_TRIP],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.stdout == f"round trip done {len(OPS)}\n"


def test_no_session_at_all(context):
    """A host that never had a session has nothing to tell, and nothing is made by asking."""
    assert call(context, "status") == ({"sessions": []}, b"")
    assert not Path(context.state_dir).exists()
