"""Starts the miniature on every host the way somebody would by hand, and waits until it serves."""

from __future__ import annotations

import http.client
import random
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.demo.layout import PACKAGE, READY_S, DemoError, DemoHost

MODULE = f"{PACKAGE}.launch_server"
# A server takes a decade of ports: node r serves on decade * 10 + r, the workers meet on the 9th.
# All below the range that Linux takes outgoing ports from: nothing takes them between two lives.
DECADES = range(2_000, 3_200)
MOST_NODES = 9
ATTEMPTS = 3  # somebody else may take a port that was free a moment ago
LOOK_S = 0.02
TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Started:
    """A server that runs: its command line with placeholders, and per node process and port."""

    command: tuple[str, ...]
    children: tuple[subprocess.Popen[bytes], ...]
    ports: tuple[int, ...]


def start_server(hosts: Sequence[DemoHost], algorithm: str) -> Started:
    """One process per host, ready when this returns.

    `DemoError` with the last log lines where it does not get ready; nothing runs then.
    """
    for attempt in range(1, ATTEMPTS + 1):
        decade = find_free_decade(len(hosts))
        ports = tuple(decade * 10 + host.rank for host in hosts)
        command = server_command(decade, len(hosts), algorithm)
        children = tuple(start_node(host, fill(command, host.rank)) for host in hosts)
        try:
            _wait_until_ready(children, ports)
        except DemoError as error:
            logs = [host.stderr.read_text(errors="replace") for host in hosts]
            if attempt < ATTEMPTS and any("Address already in use" in log for log in logs):
                continue
            tails = ["\n".join(log.splitlines()[-TAIL_LINES:]) for log in logs]
            raise DemoError("\n".join([str(error), *tails])) from error
        return Started(command, children, ports)
    raise AssertionError


def server_command(
    decade: int, nodes: int, algorithm: str, python: str = sys.executable
) -> tuple[str, ...]:
    """The command line of every node, two workers on each; its rank is a placeholder."""
    flags = {
        "--model-path": "miniature/Llama-64-words",
        "--speculative-draft-model-path": "miniature/Llama-64-words-EAGLE3",
        "--speculative-algorithm": algorithm,
        "--speculative-num-steps": "3",
        "--host": "127.0.0.1",
        "--port": f"{decade}{{rank}}",
        "--tp": str(2 * nodes),
        "--nnodes": str(nodes),
        "--node-rank": "{rank}",
        "--dist-init-addr": f"127.0.0.1:{decade}9",
    }
    return (python, "-m", MODULE, *(word for item in flags.items() for word in item))


def fill(command: Sequence[str], rank: int) -> tuple[str, ...]:
    """The command line of one node."""
    return tuple(word.replace("{rank}", str(rank)) for word in command)


def find_free_decade(nodes: int) -> int:
    """Ten ports of loopback, named without their last digit; nobody listens on them now."""
    for decade in random.sample(DECADES, len(DECADES)):
        if all(_is_free(decade * 10 + digit) for digit in (*range(nodes), 9)):
            return decade
    raise DemoError(f"no free ports between {DECADES.start}0 and {DECADES.stop}0")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def request(port: int, method: str, path: str, body: str = "") -> tuple[int, bytes]:
    """Status and body, straight from loopback: no proxy of the environment is asked."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def start_node(host: DemoHost, argv: Sequence[str]) -> subprocess.Popen[bytes]:
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
