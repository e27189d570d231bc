"""The embedded SSH server, asked by paramiko's client and by the system's."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from orchestrator.demo import keys
from orchestrator.demo.sshd import Sshd, silence_log
from tests.demo.poll import is_running, wait_for

BIG = 8_000_000  # several times what the SSH window and the pipes hold


class Host:
    """One server, its user's key, and the ways in."""

    def __init__(self, tmp_path: Path) -> None:
        silence_log()
        self.home = tmp_path / "home"
        self.home.mkdir()
        self.key_file = tmp_path / "id_ed25519"
        text = keys.make_private_key()
        keys.write_private_key(self.key_file, text)
        self.key = keys.parse_private_key(text)
        self.sshd = Sshd(
            user="demo",
            user_key=self.key,
            host_key=keys.parse_private_key(keys.make_private_key()),
            home=self.home,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], "WHO": "me"},
        )
        self.known_hosts = tmp_path / "known_hosts"
        place = (self.sshd.address, self.sshd.port)
        self.known_hosts.write_text(keys.known_hosts_text({place: self.sshd.host_key}))

    @contextlib.contextmanager
    def client(
        self, user: str = "demo", key: paramiko.PKey | None = None
    ) -> Iterator[paramiko.SSHClient]:
        """A connected client that accepts only the host's own key."""
        with paramiko.SSHClient() as client:
            client.load_host_keys(str(self.known_hosts))
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            client.connect(
                self.sshd.address,
                self.sshd.port,
                user,
                pkey=key or self.key,
                look_for_keys=False,
                allow_agent=False,
            )
            yield client

    def run(self, command: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Status, stdout and stderr of one command on a connection of its own."""
        with self.client() as client:
            channel = client.get_transport().open_session()
            channel.exec_command(command)
            # One thread each: a full stderr would stop stdout, which shares its window.
            with ThreadPoolExecutor(2) as pool:
                pool.submit(_send, channel, stdin)
                err = pool.submit(channel.makefile_stderr("rb").read)
                out = channel.makefile("rb").read()
                return channel.recv_exit_status(), out, err.result()

    def ssh(
        self, command: str, stdin: bytes = b"", known: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """The same by the system's client."""
        options = {
            "UserKnownHostsFile": known or self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
        }
        flags = [f"-o{name}={value}" for name, value in options.items()]
        place = ["-p", str(self.sshd.port), f"demo@{self.sshd.address}"]
        argv = ["ssh", "-F", "none", "-i", str(self.key_file), *flags, *place, command]
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=60, check=False)


def _send(channel: paramiko.Channel, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the command may end before it has read everything
        channel.sendall(data)
        channel.shutdown_write()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    # Other tests of this process may share a cluster with servers of its own.
    before = set(threading.enumerate())
    made = Host(tmp_path)
    yield made
    made.sshd.close()
    left = [t.name for t in set(threading.enumerate()) - before if t.name.startswith("demo-sshd")]
    assert not left, "threads outlived the server"


def test_streams_and_status(host: Host) -> None:
    """A command's stdout, stderr and exit status arrive apart, and its stdin ends."""
    assert host.run("cat; echo no >&2; exit 7", b"yes\n") == (7, b"yes\n", b"no\n")


def test_status_of_a_signal(host: Host) -> None:
    """A command that a signal ended has the status that a shell would give."""
    assert host.run("kill -KILL $$")[0] == 128 + signal.SIGKILL


def test_a_command_that_cannot_be_run(host: Host) -> None:
    """What the system refuses is told on stderr, with a status of its own."""
    assert host.run("a\0b") == (126, b"", b"demo sshd: embedded null byte\n")


def test_environment_is_the_hosts_own(host: Host) -> None:
    """Commands see the host's home and variables, and nothing of ours."""
    status, out, _ = host.run("cd; pwd; echo $WHO; env | cut -d= -f1 | sort | tr '\\n' ' '")
    assert status == 0
    assert out.decode() == f"{host.home}\nme\nHOME OLDPWD PATH PWD WHO "


@pytest.mark.parametrize(("user", "own_key"), [("demo", False), ("root", True)])
def test_strangers_stay_outside(host: Host, user: str, own_key: bool) -> None:
    """Only the one user with the one key gets in."""
    key = host.key if own_key else keys.parse_private_key(keys.make_private_key())
    with pytest.raises(paramiko.AuthenticationException), host.client(user, key):
        pass


def test_only_commands_are_run(host: Host) -> None:
    """No shell, no terminal, no SFTP, no forwarding."""
    with host.client() as client:
        transport = client.get_transport()
        for ask in (
            lambda: transport.open_session().invoke_shell(),
            lambda: transport.open_session().get_pty(),
            lambda: transport.open_session().invoke_subsystem("sftp"),
            lambda: transport.open_channel("direct-tcpip", ("127.0.0.1", 1), ("127.0.0.1", 2)),
        ):
            with pytest.raises(paramiko.SSHException):
                ask()


def test_bulk_both_ways(host: Host) -> None:
    """Much data is whole in both directions at once."""
    data = os.urandom(4096) * (BIG // 4096)
    status, out, err = host.run("tee /dev/stderr", data)
    assert status == 0
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()
    assert len(err) == len(data)


def test_a_slow_reader_slows_the_command(host: Host) -> None:
    """What the client has not read is not hoarded: the command waits."""
    with host.client() as client:
        channel = client.get_transport().open_session()
        channel.exec_command(f"head -c {BIG} /dev/zero; touch finished")
        first = channel.recv(1)
        assert not (host.home / "finished").exists()
        assert len(first + channel.makefile("rb").read()) == BIG
        assert channel.recv_exit_status() == 0
    assert (host.home / "finished").exists()


def test_a_slow_command_slows_the_client(host: Host) -> None:
    """What the command has not read is not hoarded either, and nothing of it is lost."""
    with host.client() as client:
        channel = client.get_transport().open_session()
        channel.exec_command("until [ -e go ]; do sleep 0.02; done; wc -c")
        sender = threading.Thread(target=_send, args=(channel, bytes(BIG)))
        sender.start()
        wait_for(lambda: channel.out_window_size == 0, "a full window")
        (host.home / "go").touch()
        sender.join()
        assert channel.makefile("rb").read() == b"%d\n" % BIG


def test_input_that_nobody_reads(host: Host) -> None:
    """A command that ends without reading its input does not hold up the client."""
    assert host.run("exec 0<&-; echo done", bytes(BIG)) == (0, b"done\n", b"")


def test_many_at_once(host: Host) -> None:
    """Connections, and commands on one connection, do not disturb each other."""
    numbers = [str(i).encode() for i in range(12)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda n: host.run("cat", n)[1], numbers)) == numbers
    with host.client() as client:
        channels = [client.get_transport().open_session() for _ in numbers]
        for channel in channels:
            channel.exec_command("cat; sleep 0.05")
        for channel, number in zip(channels, numbers, strict=True):
            _send(channel, number)
        assert [c.makefile("rb").read() for c in channels] == numbers


def test_commands_that_are_over_at_once(host: Host) -> None:
    """The client learns that a command was started before it learns that it ended."""
    with host.client() as client:
        for _ in range(20):
            channel = client.get_transport().open_session()
            channel.exec_command(":")
            assert channel.recv_exit_status() == 0


def test_a_lost_client_ends_the_input(host: Host) -> None:
    """When the connection goes away the command sees the end of its input and may go on."""
    with host.client() as client:
        channel = client.get_transport().open_session()
        channel.exec_command("echo up; cat > heard; touch left")
        assert channel.recv(3) == b"up\n"
        channel.sendall(b"so far")
    wait_for((host.home / "left").exists, "the command's last act")
    assert (host.home / "heard").read_bytes() == b"so far"


def test_close_ends_commands_but_not_what_left_them(host: Host) -> None:
    """A command that will not go is ended with the server; a detached process is not."""
    with host.client() as client:
        channel = client.get_transport().open_session()
        channel.exec_command(
            "trap '' HUP TERM PIPE; setsid sleep 300 >/dev/null 2>&1 </dev/null & echo $! $$; "
            "while :; do sleep 0.1; done"
        )
        lines = channel.makefile("r").readline()
        apart, command = (int(word) for word in lines.split())
        # setsid(1) is a process of the command's group until it has made the call.
        wait_for(lambda: os.getsid(apart) == apart, "a process session of its own")
        host.sshd.close()
    try:
        assert not is_running(command)
        assert is_running(apart)
    finally:
        os.kill(apart, signal.SIGKILL)


def test_close_lets_go_of_the_port(host: Host) -> None:
    """Afterwards nobody answers, and the port can be had again."""
    host.sshd.close()
    host.sshd.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host.sshd.address, host.sshd.port))
    again = Sshd(
        user="demo",
        user_key=host.key,
        host_key=host.sshd.host_key,
        home=host.home,
        env={},
        port=host.sshd.port,
    )
    again.close()


needs_ssh = pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh client on this machine")


@needs_ssh
def test_the_systems_client(host: Host) -> None:
    """OpenSSH's client gets in with key and known_hosts file, and bulk data is whole."""
    data = os.urandom(4096) * (BIG // 4096)
    found = host.ssh("cat; echo no >&2; exit 3", data)
    assert (found.returncode, found.stderr) == (3, b"no\n")
    assert hashlib.sha256(found.stdout).digest() == hashlib.sha256(data).digest()


@needs_ssh
def test_the_systems_client_checks_the_host(host: Host, tmp_path: Path) -> None:
    """With another key on file the same client refuses to go on."""
    other = tmp_path / "other"
    place = (host.sshd.address, host.sshd.port)
    stranger = keys.parse_private_key(keys.make_private_key())
    other.write_text(keys.known_hosts_text({place: stranger}))
    found = host.ssh("touch been-here", known=other)
    assert found.returncode == 255
    assert b"Host key verification failed" in found.stderr
    assert not (host.home / "been-here").exists()
