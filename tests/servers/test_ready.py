"""Ready means this very process on its port; a server that dies first is reported at once."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host, Ready
from orchestrator.onhost.agent.proc import procfs
from orchestrator.servers.output import drop_old, read_tail
from orchestrator.servers.progress import find_progress
from orchestrator.servers.ready import require_answer, wait_ready

from .conftest import Bench


def failed(*args, **options) -> HostError:
    with pytest.raises(HostError) as error:
        wait_ready(*args, **options)
    return error.value


def test_the_first_rank(agent, bench: Bench, port):
    """200 from a port that its own process owns."""
    child = bench.run("--port", str(port))
    report = wait_ready(agent, bench.server(port), bench.life(child), 0)
    assert (report.host, report.how) == ("gpu01", f"http://127.0.0.1:{port}/health answered 200")
    assert report.seconds < 10


def test_it_waits_while_the_answer_is_503(agent, bench: Bench, port):
    """Health that is not 200 yet is waited for, and stages of the log are told once each."""
    health = bench.folder / "health"
    health.write_text("503")
    child = bench.run("--port", str(port), "--health", str(health))
    with open(bench.stderr, "a") as log:
        log.write("Loading safetensors checkpoint shards:  45% Completed | 9/20 [00:01<00:01]\r")
    told: list[str] = []

    def on_progress(text: str) -> None:
        told.append(text)
        health.write_text("200")

    report = wait_ready(agent, bench.server(port), bench.life(child), 0, on_progress)
    assert report.how.endswith("/health answered 200")
    assert told == ["loading weights: 9 of 20"]


def test_an_old_server_that_still_answers(agent, bench: Bench, port):
    """A healthy answer of somebody else's is not ready: its owner is named at once."""
    old = bench.run("--port", str(port))
    child = bench.run("--port", str(port), "--mode", "silent")
    error = failed(agent, bench.server(port), bench.life(child), 0)
    title = bench.title
    user = procfs.user_name(os.getuid())
    expected = f"port {port} is taken by process {old.pid} ({title}) of {user}"
    assert (error.code, error.message) == ("port-taken", expected)


def test_a_server_that_dies(agent, bench: Bench, port):
    """Reported at once with its last lines, secrets masked, bars shortened to their last state."""
    child = bench.run("--port", str(port), "--mode", "die")
    error = failed(agent, bench.server(port), _dead(bench, child), 0)
    assert error.code == "died"
    assert error.message.startswith("server `kimi` ended ")
    assert error.message.endswith(" s after its start")
    assert error.tail == (
        "server_args=ServerArgs(api_key='[secret]')",
        "bar 90%",
        "ValueError: no such model",
    )


def _dead(bench: Bench, child) -> dict:
    return {"pid": child.pid, "start_time": 1, "stderr": bench.stderr}


def test_a_server_that_never_gets_ready(agent, bench: Bench, port):
    """The time-out says what the last answer was, and what to write to allow more."""
    child = bench.run("--port", str(port), "--health", "503")
    server = bench.server(port, timeout_s=0.5)
    error = failed(agent, server, bench.life(child), 0)
    answer = f"http://127.0.0.1:{port}/health answered 503"
    assert (error.code, error.message, error.hints, error.tail) == (
        "not-ready",
        f"server `kimi` was not ready after {error.message.split()[6]} s: {answer}",
        ("allow it more time: `ready: {timeout: ...}` of server `kimi`",),
        ("server_args=ServerArgs(api_key='[secret]')",),
    )
    silent = bench.run("--mode", "silent")
    child.kill()
    child.wait(30)
    error = failed(agent, bench.server(port, timeout_s=0), bench.life(silent), 0)
    assert error.message == (
        "server `kimi` was not ready after 0 s: nobody listens on its port yet"
    )


def test_giving_up(agent, bench: Bench, port):
    """A wait that the session cancels ends at once."""
    child = bench.run("--mode", "silent")
    error = failed(agent, bench.server(port), bench.life(child), 0, cancelled=lambda: True)
    assert (error.code, error.message) == (
        "cancelled",
        "waiting for server `kimi` was given up",
    )


def test_another_rank(agent, bench: Bench, port):
    """Its own health server says 200 of nobody: it is ready when it runs and rank 0 is ready."""
    child = bench.run("--port", "0", "--node-rank", "1")
    turns = iter([False, False, True])
    report = wait_ready(
        agent, bench.server(port), bench.life(child), 1, first_ready=lambda: next(turns)
    )
    assert report.how == "it runs, and rank 0 is ready"
    error = failed(agent, bench.server(port, timeout_s=0), bench.life(child), 1)
    assert error.message == (
        "server `kimi` was not ready after 0 s: it runs, but rank 0 is not ready"
    )


def test_a_healthy_server_that_is_dead(agent, bench: Bench, port):
    """200 of /health is not enough where the model answers nothing any more."""
    real = bench.folder / "real"
    real.write_text("503")
    child = bench.run("--port", str(port), "--real", str(real))
    error = failed(agent, bench.server(port, timeout_s=0.5), bench.life(child), 0)
    answer = f"http://127.0.0.1:{port}/health_generate answered 503"
    expected = f"server `kimi` was not ready after {error.message.split()[6]} s: {answer}"
    assert (error.code, error.message, error.hints) == (
        "not-ready",
        expected,
        ("allow it more time: `ready: {timeout: ...}` of server `kimi`",),
    )
    real.write_text("200")
    report = wait_ready(agent, bench.server(port), bench.life(child), 0)
    assert report.how == (f"http://127.0.0.1:{port}/health answered 200, /health_generate as well")


@pytest.mark.parametrize(
    ("address", "path", "words", "error"),
    [
        ("127.0.0.1", "/health", (), None),
        ("127.0.0.1", "/health", ("--health", "503"), None),
        ("127.0.0.1", "/health", ("--mode", "silent"), None),
        (
            "127.0.0.1",
            "/health",
            ("--health", "404"),
            (
                "not-ready",
                "server `kimi` would never be ready: http://127.0.0.1:{port}/health answers 404",
                ("correct `ready: {path: ...}` of server `kimi`",),
            ),
        ),
        (
            "127.0.0.3",
            "/health",
            (),
            (
                "http-refused",
                "server `kimi` listens, but not there: GET http://127.0.0.3:{port}/health:"
                " Connection refused",
                ("correct `url` of server `kimi`, as seen from its host",),
            ),
        ),
    ],
    ids=["answers", "starts", "silent", "unknown path", "elsewhere"],
)
def test_what_a_running_server_answers(agent, bench: Bench, port, address, path, words, error):
    """An address or path at which no life will ever be ready is told before this one is stopped."""
    child = bench.run("--port", str(port), *words)
    server = replace(bench.server(port), url=f"http://{address}:{port}", ready=Ready(path, 1))
    running = agent.call("describe", {"pid": child.pid}).value
    if error is None:
        require_answer(agent, server, running)
        return
    with pytest.raises(HostError) as refused:
        require_answer(agent, server, running)
    code, message, hints = error
    expected = (code, message.replace("{port}", str(port)), hints)
    assert (refused.value.code, refused.value.message, refused.value.hints) == expected


def test_no_request_before_the_user_s(agent, bench: Bench, port):
    """Who skips the warm-up wants the first forward for themselves."""
    child = bench.run("--port", str(port), "--real", "503", "--skip-server-warmup")
    report = wait_ready(agent, bench.server(port), bench.life(child), 0)
    assert report.how == f"http://127.0.0.1:{port}/health answered 200"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts a small file system")
@pytest.mark.parametrize("mode", ["die", "silent"])
def test_a_server_that_has_no_room_for_its_output(agent, bench: Bench, port, tmp_path, mode: str):
    """It may die of that with no more than an exit status, or hang: the full disk is named."""
    small = tmp_path / "small"
    small.mkdir()
    child = bench.run("--port", str(port), "--mode", mode)
    life = _dead(bench, child) if mode == "die" else bench.life(child)
    life |= {"stdout": str(small / "debug.stdout"), "stderr": str(small / "debug.stderr")}
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", small], check=True)
    try:
        error = failed(agent, bench.server(port, timeout_s=0.2), life, 0)
    finally:
        subprocess.run(["umount", small], check=True)
    assert (error.code, error.tail) == ("died" if mode == "die" else "not-ready", ())
    assert error.notes == (
        f"the file system `{small}` is full, with what it prints: `{small}/debug.stdout`,"
        f" `{small}/debug.stderr`",
    )


def test_another_rank_that_dies(agent, bench: Bench, port):
    """The same report as for the first rank."""
    child = bench.run("--mode", "die", "--node-rank", "1")
    error = failed(agent, bench.server(port), _dead(bench, child), 1)
    assert (error.code, error.tail[-1]) == ("died", "ValueError: no such model")


def test_a_server_that_was_given_back(agent, bench: Bench, port):
    """Its files are found by asking it, and stages of its former life are not told again."""
    health = bench.folder / "health"
    health.write_text("503")
    with open(bench.stderr, "a") as log:
        log.write("The server is fired up and ready to roll!\n")
    child = bench.run("--port", str(port), "--health", str(health))
    life = {name: bench.life(child)[name] for name in ("pid", "start_time")}
    told: list[str] = []
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            with open(bench.stderr, "a") as log:
                log.write("[.. TP0] Load weight end.\n")
        return False

    def on_progress(text: str) -> None:
        told.append(text)
        health.write_text("200")

    wait_ready(agent, bench.server(port), life, 0, on_progress, cancelled)
    assert told == ["weights loaded"]
    os.kill(child.pid, 9)
    child.wait(30)
    assert failed(agent, bench.server(port), life, 0).tail == ()


@pytest.mark.parametrize(
    ("old", "lines", "new"),
    [
        ("", "a b", "a b"),
        ("a b", "a b", ""),
        ("a b", "a b c", "c"),
        ("a b c", "b c d", "d"),
        ("a b c", "x y", "x y"),
        ("a a", "a a a", ""),
    ],
)
def test_new_lines(old, lines, new):
    """What was there before is known by its last lines, also where they scrolled on."""
    assert drop_old(tuple(old.split()), tuple(lines.split())) == tuple(new.split())


def test_lines_are_safe_to_show(agent, bench: Bench):
    """No escape sequence and no control character of a log reaches the terminal."""
    path = bench.folder / "log"
    path.write_bytes(b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\n\n\x08\xff\n50%\r100%\r\n")
    assert read_tail(agent, str(path), 9) == ("red x", "\\x08\\xff", "100%")
    assert read_tail(agent, str(bench.folder / "no"), 9) == ()


def test_last_words_before_a_burst_of_records(agent, bench: Bench):
    """However many records of probes stand after them, they are the server's last words."""
    path = bench.folder / "log"
    record = b"@sgldbg1 " + b"x" * 4000 + b"\n"
    path.write_bytes(b"early\n" * 200_000 + b"CUDA error\n" + record * 100 + b"bye\n" + record * 9)
    assert read_tail(agent, str(path), 2) == ("CUDA error", "bye")
    assert read_tail(agent, str(path), 3) == ("early", "CUDA error", "bye")
    path.write_bytes(record * 300)
    assert read_tail(agent, str(path), 9) == ()


# Lines as these releases write them, by their sources; those of 0.5.16 were seen here.
STARTS = """
0.5.16  [2026-11-29 21:10:43] server_args=ServerArgs(model_path='/m/target', port=1 = starting its workers
0.5.16  [2026-11-29 21:12:03 TP0] Init torch distributed begin. = waiting for all ranks
0.5.23  [2026-11-30 07:12:03 TP0] Init parallel begin. = waiting for all ranks
0.5.23  [2026-11-30 07:12:04 TP1] Init parallel ends. elapsed=0.12 s = all ranks have met
0.5.16  [2026-11-29 21:13:03 TP0] Running FlashInfer autotune with cache: /x = tuning kernels
0.5.16  [2026-11-29 21:12:04 TP1] Init torch distributed ends. elapsed=0.12 s, mem = all ranks have met
0.4.5   [2025-04-08 10:00:00 TP0] Load weight begin. avail mem=78.58 GB = loading weights
0.4.5   Loading safetensors checkpoint shards:  45% Completed | 9/20 [00:01<00:01,  7.01it/s] = loading weights: 9 of 20
0.4.5   Loading pt checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.0s/it] = loading weights: 1 of 2
0.4.5   Loading np_cache checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s] = loading weights: 0 of 2
0.4.9   Multi-thread loading shards:  13% Completed | 21/163 [00:09<01:01,  2.31it/s] = loading weights: 21 of 163
0.4.9   Multi-thread loading pt checkpoint shards: 100% Completed | 4/4 [00:09<00:00] = loading weights: 4 of 4
0.4.9   Loading safetensors using Runai Model Streamer:   5% Completed | 37/742 [00:01<00:20] = loading weights: 37 of 742
0.5.9   Loading safetensors using Fastsafetensor loader:  50%|#####     | 2/4 [00:01<00:01] = loading weights: 2 of 4
0.5.23  Loading safetensors using InstantTensor:   1% Completed | 7/700 [00:01<01:39] = loading weights: 7 of 700
0.4.5   [2025-04-08 10:00:09 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16 = weights loaded
0.5.23  [2026-11-01 10:00:09 TP0] Load weight end. Committed real weights after CUDA graph capture in 1.20 s = weights loaded
0.4.5   [2025-04-08 10:00:10 TP1] KV Cache is allocated. #tokens: 2048, K size: 1.00 GB = memory pool allocated
0.5.6   [2025-12-02 10:00:10 TP1] Mamba Cache is allocated. max_mamba_cache_size: 10 = memory pool allocated
0.4.5   [2025-04-08 10:00:10 TP0] Memory pool end. avail mem=9.92 GB = memory pool allocated
0.4.5   [2025-04-08 10:00:11 TP0] Capture cuda graph begin. This can take up to several minutes. = capturing graphs
0.4.5   [2025-04-08 10:00:11 TP0] Capture draft cuda graph begin. This can take up to several minutes. = capturing graphs (draft)
0.4.9   [2025-07-05 10:00:11 TP0] Capture draft extend cuda graph begin. This can take up to = capturing graphs (draft extend)
0.5.6   [2025-12-02 10:00:11] Capture piecewise CUDA graph begin. avail mem=5.51 GB = capturing graphs (piecewise)
0.5.9   [2026-02-11 10:00:11] Capture cpu graph begin. This can take up to several minutes. = capturing graphs
0.5.23  [2026-11-01 10:00:11 TP0] Capture target decode CUDA graph begin. backend=full = capturing graphs (target decode)
0.5.23  [2026-11-01 10:00:11 TP0] Capture Frozen-KV MTP draft cuda graph begin. = capturing graphs (Frozen-KV MTP draft)
0.4.5   Capturing batches (avail_mem=5.10 GB):  13%|#3        | 3/23 [00:01<00:07,  2.78it/s] = capturing graphs: 3 of 23
0.5.2   Capturing batches (bs=8 avail_mem=5.10 GB):  20%|## | 3/15 [00:01<00:07] = capturing graphs: 3 of 15
0.5.6   Capturing num tokens (num_tokens=512 avail_mem=5.10 GB):  20%|## | 10/50 [00:01<00:07] = capturing graphs: 10 of 50
0.5.23  Capturing prefill shape (num_tokens=512 avail_mem=5.10 GB):  20%|## | 10/50 [00:01<00:07] = capturing graphs: 10 of 50
0.5.9   Compiling num tokens (num_tokens=4096):   2%|2 | 1/50 [00:09<07:21] = compiling graphs: 1 of 50
0.4.5   [2025-04-08 10:00:20 TP0] Capture cuda graph end. Time elapsed: 9.01 s. = graphs captured
0.5.23  [2026-11-01 10:00:20 TP0] Capture target decode CUDA graph end. elapsed=9.01 s = graphs captured
0.5.2   [2025-09-11 10:00:20 TP0] Try DeepGEMM JIT Compiling for <GROUPED_GEMM_NT_F8F8BF16_MASKED> N=512 = compiling DeepGEMM kernels
0.5.2   DeepGEMM warmup:  12%|#2 | 2048/16384 [00:31<03:37, 65.8it/s] = compiling DeepGEMM kernels: 2048 of 16384
0.4.5   [2025-04-08 10:00:21] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit) = warming up
0.4.5   [2025-04-08 10:00:25] The server is fired up and ready to roll! = warmed up
0.4.5   Traceback (most recent call last): =
0.5.16  [2026-11-29 21:12:04] GET /health HTTP/1.1 503 | 1/2 =
"""  # noqa: E501


@pytest.mark.parametrize("row", STARTS.strip().splitlines())
def test_stages_of_a_start(row):
    """The words of the log become a stage; anything else says nothing."""
    line, _, text = row[8:].rpartition(" =")
    assert find_progress(["Load weight begin" if text else "", line]) == text.strip()


def test_over_a_real_channel(bench: Bench, port, tmp_path, monkeypatch):
    """The same against an agent of its own over pipes."""
    from orchestrator.agent.ship import open_agent
    from orchestrator.transport.local import LocalTransport

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "state"))
    child = bench.run("--port", str(port))
    agent = open_agent(LocalTransport(), Host("gpu01", transport="local"))
    try:
        report = wait_ready(agent, bench.server(port), bench.life(child), 0)
        assert report.how == f"http://127.0.0.1:{port}/health answered 200"
    finally:
        agent.close()
