"""SSH against a real OpenSSH server: what runs there, what is refused, what is lost."""

from __future__ import annotations

import os
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.ship import open_agent
from orchestrator.errors import HostError
from orchestrator.transport.ssh import SshTransport
from tests.agent.zipapps import make_test_zipapp
from tests.fixtures_sshd import StartSshd
from tests.sshd import Sshd
from tests.transport.opening import read_all, refused, run


def test_command_runs_and_ends(sshd: Sshd) -> None:
    """stdin and stdout are whole; the home is the host's own."""
    data = os.urandom(3 << 20)
    assert run(sshd.host("h0"), "head -c 3145728", data) == data
    assert run(sshd.host("h0"), "echo $HOME").decode().strip() == str(sshd.home("h0"))


def test_exit_status_and_stderr_are_kept(sshd: Sshd) -> None:
    """The last lines of stderr and the exit status are there to explain an early end."""
    channel = SshTransport().open(sshd.host("h0"), "echo why >&2; exit 3", 30.0)
    assert read_all(channel) == b""
    assert channel.diagnostics() == ("why", "(the process ended with status 3)")
    channel.close()
    channel.close()


def test_stderr_flood_does_not_block_stdout(sshd: Sshd) -> None:
    """More on stderr than its window holds, before anything is read."""
    command = "head -c 6000000 /dev/zero | tr '\\0' e >&2; echo done"
    assert run(sshd.host("h0"), command) == b"done\n"


def test_agent_over_ssh(sshd: Sshd) -> None:
    """The agent starts over SSH, keeps its state in the host's home and leaves with the channel."""
    agent = open_agent(SshTransport(), sshd.host("h0"), 30.0, make_test_zipapp())
    assert agent.hello["state_dir"] == str(sshd.state_dir("h0"))
    raw = os.urandom(5 << 20)
    assert agent.call("echo", {"n": 1}, raw).raw == raw
    agent.close()
    sshd.wait_closed("h0")


def test_agent_in_noise(start_sshd: StartSshd) -> None:
    """A login shell that prints a page of greetings disturbs nothing."""
    noisy = start_sshd(noise="Welcome!\n" * 500)
    agent = open_agent(SshTransport(), noisy.host("h0"), 30.0, make_test_zipapp())
    assert agent.call("echo").value == {}
    agent.close()


@pytest.mark.parametrize("shell", [s for s in ("dash", "zsh", "fish", "tcsh") if shutil.which(s)])
def test_agent_in_other_login_shells(start_sshd: StartSshd, shell: str) -> None:
    """The command line arrives as it was sent, whatever the login shell is."""
    host = start_sshd(options=[f'ForceCommand exec {shell} -c "$SSH_ORIGINAL_COMMAND"']).host("h0")
    agent = open_agent(SshTransport(), host, 30.0, make_test_zipapp())
    assert agent.call("echo").value == {}
    agent.close()


def test_hosts_are_opened_at_once(start_sshd: StartSshd) -> None:
    """Channels to several hosts open in parallel and stay apart."""
    names = [f"h{number}" for number in range(6)]
    sshd, transport, zipapp = start_sshd(names=names), SshTransport(), make_test_zipapp()

    def state_dir(name: str) -> str:
        agent = open_agent(transport, sshd.host(name), 60.0, zipapp)
        found: str = agent.hello["state_dir"]
        agent.close()
        return found

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(state_dir, names)) == [str(sshd.state_dir(name)) for name in names]


def test_nobody_listens(sshd: Sshd) -> None:
    """A port where nobody listens is named with the reason."""
    with socket.create_server(("127.0.0.9", 0)) as free:
        port = free.getsockname()[1]
    assert refused(sshd.host("h0", address="127.0.0.9", port=port)) == (
        f"unreachable\nerror: 127.0.0.9 port {port}: connection refused\n --> host h0"
    )


def test_unknown_name(sshd: Sshd) -> None:
    """A name that does not resolve is told apart from a host that is down."""
    text = refused(sshd.host("h0", address="nowhere.invalid"))
    assert text.startswith("unreachable\nerror: the name `nowhere.invalid` is not found: ")


def test_silent_address(sshd: Sshd) -> None:
    """A host that takes the connection and never speaks is left when the time is over."""
    with socket.create_server(("127.0.0.9", 0)) as mute:
        port = mute.getsockname()[1]
        started_s = time.monotonic()
        text = refused(sshd.host("h0", address="127.0.0.9", port=port), timeout_s=1.0)
        assert time.monotonic() - started_s < 8
    assert text.startswith(
        f"unreachable\nerror: 127.0.0.9 port {port} took the connection and said nothing in time\n"
        " --> host h0\nnote: Error reading SSH protocol banner"
    )


def test_dropped_greeting_is_tried_again(sshd: Sshd) -> None:
    """Connections that the server's MaxStartups drops are tried again, others are not."""
    sshd.drop_next("h0", 3)
    assert run(sshd.host("h0"), "echo in") == b"in\n"
    assert sshd.accepted("h0") == 4
    sshd.known_hosts.write_text("")
    refused(sshd.host("h0"))
    assert sshd.accepted("h0") == 5


def test_many_connections_at_once(start_sshd: StartSshd) -> None:
    """Sixteen channels to one address: eight at a time are set up, so none is dropped."""
    sshd, transport = start_sshd(), SshTransport()
    host = sshd.host("h0")

    def one(number: int) -> bytes:
        channel = transport.open(host, f"echo {number}", 60.0)
        try:
            return read_all(channel)
        finally:
            channel.close()

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(16))) == [b"%d\n" % number for number in range(16)]


def test_killed_server_is_a_lost_link(sshd: Sshd) -> None:
    """A connection that breaks is never taken for a process that ended."""
    channel = SshTransport().open(sshd.host("h0"), "echo ready; cat", 30.0)
    assert channel.read() == b"ready\n"
    sshd.kill_connections("h0")
    with pytest.raises(HostError) as caught:
        channel.read()
    assert caught.value.code == "lost"
    assert str(caught.value).startswith("lost the connection: ")
    with pytest.raises(HostError):
        channel.write(bytes(8 << 20))
    channel.close()


def test_agent_learns_of_a_lost_link(sshd: Sshd) -> None:
    """Calls that wait fail at once when the link breaks."""
    agent = open_agent(SshTransport(), sshd.host("h0"), 30.0, make_test_zipapp())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(agent.call, "wait-for", {"path": "/nowhere"})
        agent.call("echo")
        sshd.kill_connections("h0")
        error = waiting.exception(timeout=10)
    assert isinstance(error, HostError)
    assert error.code == "lost"
    agent.close()


def test_process_that_reads_nothing_is_lost(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped takes no bytes; the writer does not wait for ever."""
    monkeypatch.setattr("orchestrator.transport.channel.WRITE_STALL_S", 0.5)
    channel = SshTransport().open(sshd.host("h0"), "exec sleep 60", 30.0)
    with pytest.raises(HostError) as caught:
        channel.write(bytes(16 << 20))
    assert str(caught.value) == "lost the connection: it has read nothing for 0.5 s"
    channel.close()


def test_own_files_of_fabric_and_the_user_are_not_read(sshd: Sshd) -> None:
    """Settings of other tools in the home, even broken ones, change nothing."""
    home = Path(os.environ["HOME"])
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Host *\n  Port 1\n  Nonsense\n")
    for name in (".fabric.yml", ".invoke.yml", ".fabric.json"):
        (home / name).write_text("{ broken: [")
    assert run(sshd.host("h0"), "echo in") == b"in\n"


def test_socket_options(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options that keep exchanges short and notice a dead link are set on the socket."""
    seen: list[socket.socket] = []
    import orchestrator.transport.ssh as module

    real = module.open_tcp

    def spy(*given: Any) -> socket.socket:
        seen.append(real(*given))
        return seen[0]

    monkeypatch.setattr(module, "open_tcp", spy)
    channel = SshTransport().open(sshd.host("h0"), "cat", 30.0)
    tcp = socket.IPPROTO_TCP
    options = [
        (tcp, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (tcp, socket.TCP_KEEPIDLE, 3),
        (tcp, socket.TCP_KEEPINTVL, 3),
        (tcp, socket.TCP_KEEPCNT, 3),
        (tcp, socket.TCP_USER_TIMEOUT, 12_000),
    ]
    assert [seen[0].getsockopt(level, name) for level, name, _ in options] == [
        value for _, _, value in options
    ]
    channel.close()
