"""Who is in the way of a server on its port is what the kernel would say, and nobody else."""

from __future__ import annotations

import os
import random
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.proc.describe import describe
from orchestrator.onhost.agent.server import ports, process

from .conftest import Stage, key_of

# As a server may be found listening; `dual` takes IPv4 as well.
FOREIGN = ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::", "dual", "::ffff:127.0.0.1")
HOSTS = ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1")


def listen(address: str, port: int, share: bool = False) -> socket.socket:
    """A listening socket, bound the way that asyncio and with it SGLang does."""
    family = socket.AF_INET6 if ":" in address or address == "dual" else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            mapped = "dual" in address or "ffff" in address
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not mapped))
        made.bind(("::" if address == "dual" else address, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def find_free() -> int:
    """A port at which nobody listens or has a connection at any address, nor ever gets one.

    It is below the range that Linux takes ports for connections from.
    """
    for port in random.sample(range(11000, 19000), 200):
        if can_listen("dual", port):
            return port
    raise AssertionError("no free port")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What a test listens on."""
    with ExitStack() as made:
        try:
            made.enter_context(listen("::1", 0)).close()
        except OSError as error:
            pytest.skip(f"no IPv6 on this machine: {error}")
        yield made


def can_listen(address: str, port: int) -> bool:
    try:
        listen(address, port).close()
    except OSError:
        return False
    return True


def listen_apart(stage: Stage, address: str, port: int) -> subprocess.Popen[bytes]:
    """A process that listens there, and shares its port with whoever is asked to share it."""
    text, is_dual = ("::" if address == "dual" else address), address == "dual"
    return stage.spawn(
        f"s = socket.socket(socket.AF_INET6 if ':' in {text!r} else socket.AF_INET)\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        f"if ':' in {text!r}: s.setsockopt(41, socket.IPV6_V6ONLY, {int(not is_dual)})\n"
        f"s.bind(({text!r}, {port})); s.listen()\n"
    )


@pytest.mark.parametrize("foreign", FOREIGN)
def test_as_the_kernel_says(stack: ExitStack, foreign):
    """A foreign socket is in the way of exactly the servers that could not listen beside it."""
    port = find_free()
    stack.enter_context(listen(foreign, port))
    for host in HOSTS:
        wanted = ports.resolve(host)
        rivals = ports.find_rivals(port, wanted, ())
        assert bool(rivals) == (not can_listen(host, port)), host
        assert {rival.pid for rival in rivals} <= {os.getpid()}
        assert ports.find_rivals(port, wanted, [os.getpid()]) == []
    assert [r.wanted for r in ports.find_rivals(port, None, ())] == [None]


@pytest.mark.parametrize("own", ["127.0.0.1", "0.0.0.0", "::1", "::", "dual"])
def test_what_stands_beside_a_running_server(stack: ExitStack, stage: Stage, own):
    """Whatever listens beside it now may do so again; only a shared socket may not."""
    port = find_free()
    child = listen_apart(stage, own, port)
    addresses = {"dual": ["::", "0.0.0.0"]}.get(own, [own])
    assert describe(child.pid)["listening"] == [[address, port] for address in addresses]
    assert ports.find_addresses(port, [child.pid]) == set(addresses)
    for foreign in FOREIGN:
        try:
            beside = listen(foreign, port)
        except OSError:
            continue
        with beside:
            assert ports.find_rivals(port, set(addresses), [child.pid]) == [], foreign


@pytest.mark.parametrize("own", ["127.0.0.1", "0.0.0.0", "::", "dual"])
def test_whom_a_request_reaches(stack: ExitStack, stage: Stage, own):
    """Where two share a port, the kernel's choice is known; between equals nobody knows it."""
    port = find_free()
    child = listen_apart(stage, own, port)
    for foreign in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::", "dual"):
        with listen(foreign, port, share=True) as beside:
            beside.setblocking(False)
            for host in ("127.0.0.1", "127.0.0.2", "::1"):
                reached = ask(host, port, beside)
                told = ports.do_answer(port, host, [child.pid])
                is_either = own == foreign or (":" in host and {own, foreign} == {"::", "dual"})
                if reached is not None:
                    assert told == (reached == "server" and not is_either), (foreign, host)
    assert ports.do_answer(port, None, [child.pid])
    assert not ports.do_answer(find_free(), None, [child.pid])


def ask(host: str, port: int, beside: socket.socket) -> str | None:
    """Who takes a connection: `server`, or whoever stands `beside` it; `None` where nobody does."""
    try:
        made = socket.create_connection((host, port), timeout=10)
    except OSError:
        return None
    with made:
        try:
            beside.accept()[0].close()
        except BlockingIOError:
            return "server"
        return "beside"


def test_names_and_addresses():
    """A name stands for all its addresses; what is no name is not guessed."""
    assert ports.resolve("127.0.0.1") == {"127.0.0.1"}
    assert ports.resolve("[::1]") == {"::1"}
    assert ports.resolve("::ffff:10.0.0.1") == {"10.0.0.1"}
    assert ports.resolve("*") == {"0.0.0.0", "::"}
    assert "127.0.0.1" in (ports.resolve("localhost") or ())
    assert ports.resolve("no such name") is None


SERVER = "s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); print(s)\n"


def test_a_stop_beside_a_foreign_socket(stack: ExitStack, stage: Stage):
    """A neighbour at another address is no obstacle; who takes the server's own is named."""
    port = find_free()
    stack.enter_context(listen("127.0.0.2", port))
    stack.enter_context(listen("::1", port))
    child = stage.spawn(SERVER, str(port))
    found = describe(child.pid)
    assert found["listening"] == [["127.0.0.1", port]]
    assert process.stop(key_of(child.pid), None, 10, port, found)["left"] == []
    child.wait(30)
    stack.enter_context(listen("::ffff:127.0.0.1", port))
    main = {"pid": child.pid, "start_time": found["start_time"]}
    title, user = procfs.read_title(os.getpid()), procfs.user_name(os.getuid())
    assert process.stop(main, None, 1, port, found)["left"] == [
        f"port {port} is still held by process {os.getpid()} ({title}) of {user}"
    ]


def test_a_shared_port(stack: ExitStack, stage: Stage):
    """With SO_REUSEPORT two listen at one address, and nobody knows whom a request reaches."""
    port = find_free()
    stack.enter_context(listen("127.0.0.1", port, share=True))
    child = stage.spawn(
        "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        f"s.bind(('127.0.0.1', {port})); s.listen()\n"
    )
    rivals = ports.find_in_the_way(port, **key_of(child.pid), argv=["x"], cwd="/")
    assert rivals == [("127.0.0.1", "127.0.0.1", os.getpid())]
