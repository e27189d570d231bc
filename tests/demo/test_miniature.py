"""The miniature server: its life, its log, and the fault that the demonstration looks for."""

from __future__ import annotations

import ast
import ctypes
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from orchestrator.demo import layout
from orchestrator.demo.launch import fill, find_free_decade, request, server_command, start_node
from orchestrator.demo.processes import Process, end_all, read_processes
from tests.demo.poll import is_running, wait_for

PROMPT = "The capital of France is"
TOKENS = [31, 32, 13, 54, 43, 60, 57, 50, 55, 24, 37, 46, 3, 52, 17, 42]
STAMP = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
# The oldest and the newest interpreter that a host may have are tried where pyenv has them; the
# one that runs the tests always is.
PYENV = Path("~/.pyenv/versions").expanduser()
OTHERS = [str(p) for v in ("3.8", "3.13") for p in sorted(PYENV.glob(f"{v}.*/bin/python"))[:1]]


class Node:
    """One node of a server that a test has started."""

    def __init__(self, host: layout.DemoHost, argv: tuple[str, ...], port: int) -> None:
        self.host = host
        self.port = port
        self.child = start_node(host, argv)

    def status(self, path: str) -> int:
        """The status that GET of this path answers, 0 where nobody does."""
        try:
            return request(self.port, "GET", path)[0]
        except (OSError, http.client.HTTPException):
            return 0

    def log(self) -> str:
        """What it has logged."""
        return self.host.stderr.read_text()

    def workers(self) -> list[Process]:
        """Its scheduler processes."""
        found = read_processes([self.host.home])
        return [p for p in found if p.argv[0].startswith("sglang::")]

    def is_gone(self) -> bool:
        """Whether neither the main process nor anything that it started lives."""
        return self.child.poll() is not None and not read_processes([self.host.home])


class Server:
    """Nodes on hosts of their own, ended at the end of the test."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.hosts: list[layout.DemoHost] = []
        self.nodes: list[Node] = []

    def make_host(self, **env: str) -> layout.DemoHost:
        """A host with an install of the miniature."""
        number = len(self.hosts)
        inherited = {"PATH": os.environ["PATH"], **env}
        folder = self.tmp_path / f"host{number}"
        self.hosts.append(layout.make_host(folder, f"host{number}", number, inherited))
        return self.hosts[-1]

    def start(
        self, nodes: int = 1, algorithm: str = "EAGLE", python: str = sys.executable, **env: str
    ) -> list[Node]:
        """Start one node per host and wait until all are healthy."""
        while len(self.hosts) < nodes:
            self.make_host(**env)
        decade = find_free_decade(nodes)
        command = server_command(decade, nodes, algorithm, python)
        self.nodes = [
            Node(host, fill(command, rank), decade * 10 + rank)
            for rank, host in enumerate(self.hosts)
        ]
        for node in self.nodes:
            wait_for(lambda n=node: n.status("/health") == 200, f"health in {node.log()}")  # type: ignore[misc]
        return self.nodes

    def close(self) -> None:
        end_all([host.home for host in self.hosts])
        for node in self.nodes:
            node.child.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Two nodes for the tests that only look at them."""
    made = Server(tmp_path_factory.mktemp("pair"))
    yield made.start(nodes=2)
    made.close()


def generate(node: Node, **asked: object) -> dict[str, object]:
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": 16}, **asked}
    status, data = request(node.port, "POST", "/generate", json.dumps(body))
    assert status == 200, data
    answer: dict[str, object] = json.loads(data)
    return answer


def count_prefills(node: Node, tokens: int) -> int:
    return node.log().count(f"Prefill batch, #new-seq: 1, #new-token: {tokens}\n")


@pytest.mark.parametrize(("algorithm", "passes"), [("EAGLE", 15), ("EAGLE3", 4)])
def test_tokens_are_equal_whatever_the_draft_does(
    server: Server, algorithm: str, passes: int
) -> None:
    """Only the number of passes tells a draft that works from one that does not."""
    (node,) = server.start(algorithm=algorithm)
    for _ in range(2):
        answer = generate(node, rid="mine")
        meta = answer["meta_info"]
        assert isinstance(meta, dict)
        assert answer["output_ids"] == TOKENS
        assert (meta["id"], meta["prompt_tokens"], meta["completion_tokens"]) == ("mine", 24, 16)
        assert meta["spec_verify_ct"] == passes
    accepted = "accept len: 1.00" if algorithm == "EAGLE" else "accept len: 3.75"
    assert accepted in node.log()


WIDTHS = """
import json, sys
from sglang.srt.models import llama_eagle3
from sglang.srt.models.llama import encode
from sglang.srt.speculative.eagle_worker import EAGLEWorker

seen = {}
forward = llama_eagle3.LlamaModel.forward

def spy(self, input_ids, positions, forward_batch):
    own = self.embed_tokens(input_ids).shape[-1]
    wide = forward_batch.spec_info.hidden_states.shape[-1]
    seen.setdefault(forward_batch.forward_mode.name, []).append((wide, own))
    assert forward_batch.rids == ["r1"]
    return forward(self, input_ids, positions, forward_batch)

llama_eagle3.LlamaModel.forward = spy
found = EAGLEWorker(sys.argv[1], 3).forward_batch_generation("r1", encode(sys.argv[2]), 16)
print(json.dumps([found.output_ids, {mode: sorted(set(w)) for mode, w in seen.items()}]))
"""


@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
@pytest.mark.parametrize(("algorithm", "fused"), [("EAGLE", 64), ("EAGLE3", 192)])
def test_widths_by_forward_mode(python: str, algorithm: str, fused: int, tmp_path: Path) -> None:
    """The draft gets what a real server's gets: the fault shows everywhere but in DECODE."""
    layout.install_miniature(tmp_path)
    argv = [python, "-c", WIDTHS, algorithm, PROMPT]
    env = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    out = subprocess.run(argv, env=env, capture_output=True, check=True, timeout=60).stdout
    tokens, widths = json.loads(out)
    assert tokens == TOKENS
    assert widths == {
        "EXTEND": [[fused, 64]],
        "DRAFT_EXTEND_V2": [[fused, 64]],
        "DECODE": [[64, 64]],
    }


def test_the_statement_of_the_patch() -> None:
    """The statement that real releases have, once, with the silent test right after it."""
    file = resources.files("orchestrator.demo").joinpath(
        "miniature/sglang/srt/models/llama_eagle3.py"
    )
    tree = ast.parse(file.read_text())
    model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "LlamaModel")
    forward = next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    texts = [ast.unparse(statement) for statement in forward.body]
    at = texts.index("hidden_states = forward_batch.spec_info.hidden_states")
    assert texts[at + 1] == (
        "if hidden_states.shape[-1] != embeds.shape[-1]:\n"
        "    hidden_states = self.fc(hidden_states)"
    )


def test_processes_look_like_sglangs(pair: list[Node]) -> None:
    """Titles stand where arguments and environment were; main processes keep both."""
    first, second = pair
    for node, ranks in ((first, (0, 1)), (second, (2, 3))):
        titles = sorted(worker.argv[0] for worker in node.workers())
        assert titles == [f"sglang::scheduler_TP{rank}" for rank in ranks]
        for worker in node.workers():
            assert worker.ppid == node.child.pid
            raw = Path(f"/proc/{worker.pid}/cmdline").read_bytes()
            assert re.fullmatch(rb"sglang::scheduler_TP\d\0{50,}", raw)
            assert Path(f"/proc/{worker.pid}/comm").read_text() == "sglang::schedul\n"
            assert b"HOME=" not in Path(f"/proc/{worker.pid}/environ").read_bytes()
        main = next(p for p in read_processes([node.host.home]) if p.pid == node.child.pid)
        assert main.argv[1:3] == ("-m", "sglang.launch_server")
        assert f"PYTHONPATH={node.host.site}" in main.environ


def test_log_lines(pair: list[Node]) -> None:
    """Prefixes on stderr, access lines on stdout, and the warm-up before the ready line."""
    first, second = pair
    generate(first)
    line = re.compile(rf"{STAMP}( TP[01])?\] \S.*")
    lines = first.log().splitlines()
    assert all(line.fullmatch(text) for text in lines), lines
    texts = [text.partition("] ")[2] for text in lines]
    warm = texts.index("Prefill batch, #new-seq: 1, #new-token: 29")
    ready = texts.index("The server is fired up and ready to roll!")
    mine = texts.index("Prefill batch, #new-seq: 1, #new-token: 24")
    assert warm < ready < mine
    assert f"Dummy health check server started in background thread at 127.0.0.1:{second.port}" in (
        second.log()
    )
    assert "fired up" not in second.log()
    access = rf'{STAMP}\] INFO:     127\.0\.0\.1:\d+ - "POST /generate HTTP/1\.1" 200 OK'
    assert re.search(access, first.host.stdout.read_text())


def test_health_runs_the_model(pair: list[Node]) -> None:
    """As in SGLang, each poll of `/health` generates one token."""
    node = pair[0]
    before = count_prefills(node, 1)
    assert [node.status("/health") for _ in range(3)] == [200] * 3
    assert count_prefills(node, 1) == before + 3


def test_health_leaves_the_model_alone(server: Server) -> None:
    """As in SGLang, a variable turns that off."""
    (node,) = server.start(SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION="0")
    assert node.status("/health") == 200
    assert count_prefills(node, 1) == 0


def test_paths(pair: list[Node]) -> None:
    """What is known, what is not, and what the other nodes have."""
    first, second = pair
    assert [first.status(p) for p in ("/v1/models", "/model_info", "/nope")] == [200, 200, 404]
    assert [second.status(p) for p in ("/health", "/v1/models")] == [200, 404]
    for body in ("{", "[]", '{"text": ""}', '{"input_ids": [64]}'):
        assert request(first.port, "POST", "/generate", body)[0] == 400
    assert generate(first)["output_ids"] == TOKENS


def test_sigterm_ends_all_nodes(server: Server) -> None:
    """Node 0 drains, and takes the other nodes with it; nothing is left."""
    first, second = server.start(nodes=2)
    first.child.send_signal(signal.SIGTERM)
    for node in (first, second):
        wait_for(node.is_gone, "the end of a node")
        assert node.child.returncode == 0
    assert "SIGTERM received. Draining requests and shutting down..." in first.log()
    assert "Traceback" not in first.log() + second.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_signal_that_another_thread_is_handed(server: Server, number: signal.Signals) -> None:
    """The kernel chooses the thread; only the main one can act, and it waits for something else."""
    (node,) = server.start()
    main = node.child.pid
    threads = [int(task.name) for task in Path(f"/proc/{main}/task").iterdir()]
    other = next(thread for thread in threads if thread != main)
    assert ctypes.CDLL(None).tgkill(main, other, number) == 0
    wait_for(node.is_gone, "the end of the server")
    assert node.child.returncode == (0 if number == signal.SIGTERM else -signal.SIGKILL)


@pytest.mark.parametrize("victim", ["worker", "other worker", "main", "other main"])
def test_a_killed_process_ends_all_nodes(server: Server, victim: str) -> None:
    """Half a server does not live on."""
    first, second = server.start(nodes=2)
    node = second if victim.startswith("other") else first
    pid = node.workers()[0].pid if victim.endswith("worker") else node.child.pid
    os.kill(pid, signal.SIGKILL)
    for node in (first, second):
        wait_for(node.is_gone, "the end of a node")


def test_a_failing_worker_ends_the_server(server: Server) -> None:
    """An exception in a model is logged with its rank, whole, and nothing is left running."""
    host = server.make_host()
    model = host.site / "sglang/srt/models/llama_eagle3.py"
    model.write_text(model.read_text().replace("# idle batch", "raise ValueError('broken')"))
    argv = fill(server_command(find_free_decade(1), 1, "EAGLE"), 0)
    node = Node(host, argv, 0)
    server.nodes.append(node)
    wait_for(node.is_gone, "the end of the server")
    assert node.child.returncode == -signal.SIGKILL
    assert re.search(
        rf"{STAMP} TP\d\] Scheduler hit an exception:\nTraceback [\s\S]*\nValueError: broken\n",
        node.log(),
    )
    assert "Received sigquit from a child process" in node.log()


def test_a_wrong_command_line(server: Server) -> None:
    """An argument that nobody knows ends the start with a usage message."""
    host = server.make_host()
    argv = (*fill(server_command(find_free_decade(1), 1, "EAGLE"), 0), "--no-such-flag")
    node = Node(host, argv, 0)
    assert node.child.wait(30) == 2
    assert node.log().endswith("error: unrecognized arguments: --no-such-flag\n")


@pytest.mark.parametrize("python", OTHERS or [sys.executable])
def test_other_interpreters(server: Server, python: str) -> None:
    """It serves under the oldest and the newest Python that a host may have."""
    first, second = server.start(nodes=2, python=python)
    assert generate(first)["output_ids"] == TOKENS
    pids = [worker.pid for worker in (*first.workers(), *second.workers())]
    assert len(pids) == 4
    first.child.send_signal(signal.SIGTERM)
    wait_for(lambda: not any(is_running(pid) for pid in pids), "the end of the workers")
