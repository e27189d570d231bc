"""A real SGLang server on the CPU, started and stopped by hand as a user would."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real_sglang.environment import Environment

# Two idle cores need 25 s, mostly for imports in four processes; 131 s were seen under load 20.
START_TIMEOUT_S = 300.0
# 8-10 s are normal: the server polls for its end every 5 s and then shuts its workers down.
STOP_TIMEOUT_S = 60.0
POLL_S = 0.1
SHARED_MEMORY = ("sgl_shm_mq_", "sglang_loads_")
# Opens a file for each stream, appends, and survives the shell: what `nohup ... &` gives.
BY_HAND = 'out=$1 err=$2; shift 2; nohup setsid "$@" >>"$out" 2>>"$err" </dev/null & echo $!'


@dataclass(frozen=True)
class Launch:
    """How one main process of a server is started."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: Path
    # What the shell that starts it does first, such as `ulimit` and `umask`.
    prepare: Callable[[], None] | None = None


@dataclass(frozen=True)
class Running:
    """A main process that was started by hand; its workers are its children."""

    pid: int
    port: int
    stdout: Path
    stderr: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def command(
    environment: Environment,
    port: int,
    algorithm: str | None,
    *,
    home: Path,
    tp: int = 2,
    nnodes: int = 1,
    node_rank: int = 0,
    init_addr: str | None = None,
    packages: Path | None = None,
) -> Launch:
    """The command line of one node; `algorithm` is `EAGLE`, `EAGLE3` or `None` for plain decoding.

    `home` takes the place of the user's home directory, and is where the server runs. `packages`
    is a folder that is searched before the environment's own: an install of this node alone.
    """
    argv = [str(environment.python), "-m", "sglang.launch_server"]
    argv += ["--model-path", str(environment.models / "target"), "--dtype", "float32"]
    argv += ["--device", "cpu", "--host", "127.0.0.1", "--port", str(port), "--tp", str(tp)]
    argv += ["--max-total-tokens", "2048", "--max-running-requests", "4"]
    # Else each idle scheduler takes a core, which others need to start.
    argv += ["--disable-overlap-schedule", "--sleep-on-idle"]
    if algorithm is None:
        argv += ["--attention-backend", "torch_native"]
    else:
        argv += _speculation(environment, algorithm)
    if nnodes > 1:
        argv += ["--nnodes", str(nnodes), "--node-rank", str(node_rank)]
        argv += ["--dist-init-addr", str(init_addr)]
    return Launch(tuple(argv), _environ(environment, home, packages, tp), home)


def _speculation(environment: Environment, algorithm: str) -> list[str]:
    # On a CPU without AMX one `--attention-backend intel_amx`, or the same for prefill and decode,
    # falls back to torch_native, which refuses EAGLE; these three together do not.
    return [
        *("--speculative-algorithm", algorithm),
        *("--speculative-draft-model-path", str(environment.models / "draft")),
        *("--speculative-num-steps", "3", "--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", "4"),
        *("--prefill-attention-backend", "intel_amx"),
        *("--decode-attention-backend", "torch_native"),
        *("--speculative-draft-attention-backend", "intel_amx"),
    ]


def _environ(
    environment: Environment, home: Path, packages: Path | None, tp: int
) -> dict[str, str]:
    """Small and whole: nothing of the test's own environment reaches the server."""
    paths = [str(path) for path in (packages, environment.shim) if path]
    return {
        "PATH": f"{environment.python.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": ":".join(paths),
        "SGLANG_USE_CPU_ENGINE": "1",
        # one entry per worker, where a machine has a single NUMA node
        "SGLANG_CPU_OMP_THREADS_BIND": "|".join(str(cpu) for cpu in _ends(allowed_cpus())[:tp]),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        # else the first request waits 30 s for a C++ compiler
        "TORCHDYNAMO_DISABLE": "1",
        # else a crash is followed by a minute of waiting for dumps
        "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
    }


def allowed_cpus() -> list[int]:
    """Those that we may run on, in order."""
    return sorted(os.sched_getaffinity(0))


def _ends(cpus: Sequence[int]) -> list[int]:
    return [cpus[0], cpus[-1]]


def free_port() -> int:
    """A port below the ephemeral range, so that no worker of a server takes it meanwhile."""
    for _ in range(200):
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("no free port between 20000 and 32000")


def start(launch: Launch, folder: Path) -> Running:
    """Start it in the background with its output in `folder`; does not wait until it is ready."""
    folder.mkdir(parents=True, exist_ok=True)
    stdout, stderr = folder / "server.out", folder / "server.err"
    shell = ["/bin/sh", "-c", BY_HAND, "sh", str(stdout), str(stderr), *launch.argv]
    done = subprocess.run(
        shell,
        env=dict(launch.environ),
        cwd=launch.cwd,
        preexec_fn=launch.prepare,
        capture_output=True,
        check=True,
        timeout=30,
    )
    port = int(launch.argv[launch.argv.index("--port") + 1])
    return Running(int(done.stdout), port, stdout, stderr)


def wait_ready(server: Running, timeout_s: float = START_TIMEOUT_S) -> float:
    """Seconds until `/health` answers 200; fails at once, with the last lines, if it dies first."""
    began = time.monotonic()

    def ready() -> bool:
        if not is_alive(server.pid):
            raise AssertionError(f"the server died while starting:\n{last_lines(server.stderr)}")
        return get_status(f"{server.url}/health") == 200

    wait_for(ready, timeout_s, lambda: f"no 200 from /health:\n{last_lines(server.stderr)}")
    return time.monotonic() - began


def stop(servers: Sequence[Running]) -> None:
    """End them, first node first, with all of their processes."""
    trees = {pid for server in servers for pid in tree(server.pid)}
    for server in servers:
        _signal(server.pid, signal.SIGTERM)
    try:
        wait_for(lambda: not any(map(is_alive, trees)), STOP_TIMEOUT_S, lambda: "still running")
    except AssertionError:
        kill(sorted(trees))


def kill(pids: Sequence[int]) -> None:
    """End processes that nobody shuts down any more."""
    for pid in pids:
        _signal(pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, pids)), 30, lambda: f"SIGKILL left {pids}")


def generate(url: str, text: str, tokens: int = 12) -> list[int]:
    """The token ids that greedy decoding answers with."""
    body = {"text": text, "sampling_params": {"max_new_tokens": tokens, "temperature": 0}}
    request = urllib.request.Request(
        f"{url}/generate",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with _opener().open(request, timeout=120) as response:
        answer: dict[str, Any] = json.load(response)
    return list(answer["output_ids"])


def get_status(url: str) -> int | None:
    """The status of a GET, or `None` where nobody answers."""
    try:
        with _opener().open(url, timeout=20) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return None


def _opener() -> urllib.request.OpenerDirector:
    """Loopback only: a proxy of the environment must not see it."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def wait_for(fact: Callable[[], bool], timeout_s: float, describe: Callable[[], str]) -> None:
    """Poll until `fact` holds."""
    deadline = time.monotonic() + timeout_s
    while not fact():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout_s:.0f} s: {describe()}")
        time.sleep(POLL_S)


def last_lines(path: Path, count: int = 30) -> str:
    """The end of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-count:])


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def tree(pid: int) -> list[int]:
    """The process and all of its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, ()))
    return found


def _stat(pid: int) -> list[str]:
    """State, parent and what follows them in /proc/PID/stat; empty where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def shared_memory_cleaned() -> Iterator[None]:
    """Take away what servers that ran inside leave in /dev/shm, even after a clean end."""
    folder = Path("/dev/shm")
    before = set(folder.iterdir())
    try:
        yield
    finally:
        for path in set(folder.iterdir()) - before:
            if path.name.startswith(SHARED_MEMORY):
                path.unlink(missing_ok=True)
