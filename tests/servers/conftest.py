"""A small real server and an agent in this very process, for everything but the wire."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.client import Reply
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host, Install, LaunchAdopt, Ready, Server
from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.ops_host import OPS
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.refusal import Refusal
from tests.onhost.process.conftest import Stage
from tests.onhost.process.conftest import open_dir as open_dir

SERVER = '''
"""Answers /health by a file's text, /generate by its prompt, and dies when told to."""
import argparse, http.server, json, os, socketserver, sys, time
parser = argparse.ArgumentParser()
for flag, default in (("--port", 0), ("--node-rank", 0), ("--nnodes", 1)):
    parser.add_argument(flag, type=int, default=default)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--mode", default="")
parser.add_argument("--health", default="200")
parser.add_argument("--real", default="404")  # what /health_generate answers
parser.add_argument("--skip-server-warmup", action="store_true")
parser.add_argument("--api-key")
parser.add_argument("--disaggregation-mode")
parser.add_argument("--dist-init-addr", "--nccl-init-addr")
args = parser.parse_args()
print("server_args=ServerArgs(api_key='hush-hush')", file=sys.stderr)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = args.real if self.path == "/health_generate" else args.health
        text = open(said).read() if os.path.exists(said) else said
        self.answer(int(text), b"{}")
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("text") == "die":
            sys.stderr.write("\\x1b[31mScheduler hit an exception\\x1b[0m\\n")
            os._exit(3)
        if asked.get("text") == "drop":
            return
        self.answer(500 if asked.get("text") == "fault" else 200, json.dumps(asked).encode())
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass

if args.mode == "die":
    print("bar 10%\\rbar 90%\\nValueError: no such model", file=sys.stderr)
    sys.exit(1)
if args.mode == "deaf":  # as the nodes but the first of 0.5.23; its worker takes after it
    import signal, subprocess
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = "from multiprocessing import util; import time; time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", code])
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    allow_reuse_port = args.mode == "share"
if args.mode != "silent":
    server = Server((args.host, args.port), Handler)
if args.mode == "title":  # as setproctitle does
    package = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    title = (package + "::http_server").encode()
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(title + bytes(end - start - len(title)))
open(os.environ["READY"], "w").close()
if args.mode == "silent":
    time.sleep(60)
server.serve_forever()
'''


class DirectAgent:
    """Calls the agent's ops without the wire; values go through JSON all the same."""

    def __init__(self, state_dir: str) -> None:
        self.host = "gpu01"
        self._context = Context(state_dir)

    def call(
        self, op: str, args: Mapping[str, Any] | None = None, raw: bytes = b"", timeout_s: float = 1
    ) -> Reply:
        try:
            value, data = OPS[op](self._context, json.loads(json.dumps(args or {})), raw)
        except Refusal as refusal:
            raise HostError(
                refusal.message, host=self.host, code=refusal.code, data=refusal.data
            ) from None
        return Reply(json.loads(json.dumps(value)), data)


class Bench:
    """One package of a server, and the processes that were started of it."""

    def __init__(self, folder: Path, stage: Stage) -> None:
        self.folder = folder
        self.stage = stage
        self.package = f"tiny{os.getpid()}{abs(hash(str(folder))) % 10**8}"
        self.install = Install("env", sys.executable, self.package)
        self.host = Host("gpu01", address="10.0.0.1")
        self.stderr = str(folder / "stderr")
        self.title = f"{os.path.basename(sys.executable)} -m {self.package}.launch_server"
        (folder / self.package).mkdir()
        (folder / self.package / "__init__.py").touch()
        (folder / self.package / "launch_server.py").write_text(SERVER)

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", f"{self.package}.launch_server", *args]

    def run(self, *args: str, **options: Any) -> subprocess.Popen[bytes]:
        with open(self.stderr, "ab") as file:
            options.setdefault("stderr", file)
            return self.stage.run(self.argv(*args), cwd=self.folder, **options)

    def life(self, child: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What `start-server` would have answered for this process."""
        stat = procfs.read_stat(child.pid)
        assert stat is not None
        return {"pid": child.pid, "start_time": stat.start_time, "stderr": self.stderr}

    def server(self, port: int, launch: Any = None, timeout_s: float = 30) -> Server:
        url = f"http://127.0.0.1:{port}"
        ready = Ready("/health", timeout_s)
        return Server("kimi", "env", ("gpu01",), launch or LaunchAdopt(), url, ready)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    stage = Stage(tmp_path)
    yield Bench(tmp_path, stage)
    stage.close()


@pytest.fixture
def agent(tmp_path: Path) -> DirectAgent:
    return DirectAgent(str(tmp_path / "state"))


@pytest.fixture
def port() -> int:
    """A port that nobody listened on a moment ago."""
    return open_port()


def open_port() -> int:
    """Another port that nobody listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
