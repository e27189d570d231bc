"""Who has a server's port is said before anything is stopped, and only if it is in the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from orchestrator.errors import HostError
from orchestrator.model.inventory import LaunchCommand
from orchestrator.model.session import Restart
from orchestrator.onhost.agent.proc import procfs
from orchestrator.servers.base import find, for_host
from orchestrator.servers.life import debug_life
from orchestrator.servers.ports import require_port
from orchestrator.servers.ready import require_answer, wait_ready
from tests.onhost.process.conftest import wait_for
from tests.onhost.process.test_ports import find_free, listen

from .conftest import Bench

ME = f"process {os.getpid()} ({procfs.read_title(os.getpid())}) of {procfs.user_name(os.getuid())}"
HINTS = ("stop that process, or give the server another port",)


@pytest.fixture
def neighbour() -> Iterator[tuple[ExitStack, int]]:
    """Somebody who listens at 127.0.0.2, and the port."""
    with ExitStack() as stack:
        port = find_free()
        stack.enter_context(listen("127.0.0.2", port))
        yield stack, port


def refused(call, *args) -> tuple:
    with pytest.raises(HostError) as error:
        call(*args)
    return error.value.code, error.value.message, error.value.notes, error.value.hints


def test_a_running_server_beside_a_neighbour(agent, bench: Bench, neighbour):
    """Nothing is in its way, unless the session would have it listen everywhere."""
    _, port = neighbour
    child = bench.run("--port", str(port))
    server = bench.server(port)
    found = find(agent, server, bench.install, bench.host, 0, 1)
    require_port(agent, port, found.description, found.original)
    assert wait_ready(agent, server, bench.life(child), 0).how.endswith("/health answered 200")
    life = debug_life(found.original, Restart(add_args=("--host", "0.0.0.0")))
    assert refused(require_port, agent, port, found.description, life) == (
        "port-taken",
        f"port {port} is taken by {ME}",
        ("it listens on 127.0.0.2, the server on 0.0.0.0: there cannot be both on one port",),
        HINTS,
    )
    assert child.poll() is None


def test_somebody_else_answers_at_its_url(agent, bench: Bench, neighbour):
    """Each has an address of its own on the port, and `url` is that of the other one."""
    stack, port = neighbour
    stack.enter_context(listen("127.0.0.1", port))
    child = bench.run("--port", str(port), "--host", "127.0.0.3")
    server = bench.server(port)
    found = wait_for(lambda: find_listening(agent, bench, server, port))
    require_port(agent, port, found.description, found.original)
    assert refused(require_answer, agent, server, found.description) == (
        "port-taken",
        f"port {port} is taken by {ME}",
        (f"a request to {server.url} reaches it, and not the server (pid {child.pid})",),
        HINTS,
    )
    require_answer(agent, replace(server, url=f"http://127.0.0.3:{port}"), found.description)


def find_listening(agent, bench: Bench, server, port: int):
    """The server once it listens."""
    found = find(agent, server, bench.install, bench.host, 0, 1)
    return found if port in found.description["ports"] else None


def test_a_server_that_shares_its_port(agent, bench: Bench):
    """Whoever listens at its very address may answer in its place, now and later."""
    port = find_free()
    bench.run("--port", str(port), "--mode", "share")
    with listen("127.0.0.1", port, share=True):
        found = find(agent, bench.server(port), bench.install, bench.host, 0, 1)
        assert refused(require_port, agent, port, found.description, found.original) == (
            "port-taken",
            f"port {port} is taken by {ME}",
            ("both listen on 127.0.0.1 (SO_REUSEPORT): nobody knows whom a request reaches",),
            HINTS,
        )


def test_a_start_whose_address_somebody_else_answers(agent, bench: Bench):
    """A port is not its own where the kernel hands requests to a socket that is nearer."""
    port = find_free()
    child = bench.run("--port", str(port), "--host", "0.0.0.0", "--mode", "share")
    with listen("127.0.0.1", port, share=True):
        assert refused(wait_ready, agent, bench.server(port), bench.life(child), 0) == (
            "port-taken",
            f"port {port} is taken by {ME}",
            (),
            HINTS,
        )
    assert wait_ready(agent, bench.server(port), bench.life(child), 0).how


def test_a_server_that_is_to_be_started(agent, bench: Bench, neighbour):
    """The address of its command line counts, or SGLang's own where it says none."""
    stack, port = neighbour

    def look(*words: str):
        launch = LaunchCommand(tuple(bench.argv("--port", str(port), *words)))
        return find(agent, bench.server(port, launch), bench.install, bench.host, 0, 1)

    assert look().description is None
    assert look("--host", "::1").description is None
    assert refused(look, "--ho=127.0.0.2") == (
        "port-taken",
        f"port {port} is taken by {ME}",
        (),
        HINTS,
    )
    stack.enter_context(listen("::ffff:127.0.0.1", port))
    assert refused(look) == ("port-taken", f"port {port} is taken by {ME}", (), HINTS)
    code, message, notes, _ = refused(look, "--host", "0.0.0.0")
    assert (code, message) == ("port-taken", f"port {port} is taken by {ME}")
    assert notes == tuple(
        f"it listens on 127.0.0.{n}, the server on 0.0.0.0: there cannot be both on one port"
        for n in (2, 1)
    )
    life = for_host(LaunchCommand(("x", "--config", "/no.yaml")), bench.host, 0, 1)
    assert refused(require_port, agent, port, None, life)[0] == "port-taken"


def test_a_start_beside_a_neighbour(agent, bench: Bench, neighbour):
    """While it starts a neighbour is no old server; who would answer in its place is."""
    stack, port = neighbour
    child = bench.run("--mode", "silent")
    server = bench.server(port, timeout_s=0)
    code, message, *_ = refused(wait_ready, agent, server, bench.life(child), 0)
    assert (code, message) == (
        "not-ready",
        "server `kimi` was not ready after 0 s: nobody listens on its port yet",
    )
    stack.enter_context(listen("127.0.0.1", port))
    assert refused(wait_ready, agent, server, bench.life(child), 0) == (
        "port-taken",
        f"port {port} is taken by {ME}",
        (),
        HINTS,
    )
