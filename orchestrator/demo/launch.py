"""Starts the miniature on every host the way somebody would by hand, and waits until it serves."""

from __future__ import annotations

import http.client
import random
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from orchestrator.demo.layout import PACKAGE, READY_S, DemoError, DemoHost

MODULE = f"{PACKAGE}.launch_server"
# Below the range that Linux takes outgoing ports from: nothing takes these between two lives.
PORTS = range(20_000, 32_000)
ATTEMPTS = 3  # somebody else may take a port that was free a moment ago
LOOK_S = 0.02
TAIL_LINES = 15


def start_server(
    hosts: Sequence[DemoHost], algorithm: str
) -> tuple[list[subprocess.Popen[bytes]], list[int]]:
    """One process per host, and the HTTP port of each; ready when this returns.

    `DemoError` with the last log lines where it does not get ready; nothing runs then.
    """
    for attempt in range(1, ATTEMPTS + 1):
        *ports, dist_port = find_free_ports(len(hosts) + 1)
        children = [
            _start(host, server_argv(host.rank, len(hosts), port, dist_port, algorithm))
            for host, port in zip(hosts, ports, strict=True)
        ]
        try:
            _wait_until_ready(children, ports)
        except DemoError as error:
            logs = [host.stderr.read_text(errors="replace") for host in hosts]
            if attempt < ATTEMPTS and any("Address already in use" in log for log in logs):
                continue
            tails = ["\n".join(log.splitlines()[-TAIL_LINES:]) for log in logs]
            raise DemoError("\n".join([str(error), *tails])) from error
        return children, ports
    raise AssertionError


def server_argv(
    rank: int,
    nodes: int,
    port: int,
    dist_port: int,
    algorithm: str,
    python: str = sys.executable,
) -> tuple[str, ...]:
    """The command line of one node, two workers on each."""
    flags = {
        "--model-path": "miniature/Llama-64-words",
        "--speculative-draft-model-path": "miniature/Llama-64-words-EAGLE3",
        "--speculative-algorithm": algorithm,
        "--speculative-num-steps": "3",
        "--host": "127.0.0.1",
        "--port": str(port),
        "--tp": str(2 * nodes),
        "--nnodes": str(nodes),
        "--node-rank": str(rank),
        "--dist-init-addr": f"127.0.0.1:{dist_port}",
    }
    return (python, "-m", MODULE, *(word for item in flags.items() for word in item))


def find_free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise DemoError(f"no {count} free ports between {PORTS.start} and {PORTS.stop}")


def request(port: int, method: str, path: str, body: str = "") -> tuple[int, bytes]:
    """Status and body, straight from loopback: no proxy of the environment is asked."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _start(host: DemoHost, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """As with `nohup ... >> server.out 2>> server.err &` in the host's home directory."""
    with host.stdout.open("ab") as stdout, host.stderr.open("ab") as stderr:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=host.home,
            env={**host.env, "PYTHONPATH": str(host.site)},
            start_new_session=True,
        )


def _wait_until_ready(children: Sequence[subprocess.Popen[bytes]], ports: Sequence[int]) -> None:
    deadline = time.monotonic() + READY_S
    try:
        while not all(_is_healthy(port) for port in ports):
            if any(child.poll() is not None for child in children):
                raise DemoError("the miniature server ended while it was starting")
            if time.monotonic() > deadline:
                raise DemoError(f"the miniature server was not ready within {READY_S} s")
            time.sleep(LOOK_S)
    except BaseException:
        for child in children:
            child.kill()  # its workers end with it
            child.wait()
        raise


def _is_healthy(port: int) -> bool:
    try:
        return request(port, "GET", "/health")[0] == 200
    except (OSError, http.client.HTTPException):
        return False
