"""SSH against a real OpenSSH server: what gets in, what is refused in which words, what is lost."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.ship import open_agent
from orchestrator.diagnostics import render
from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.base import Channel
from orchestrator.transport.hostkeys import fingerprint
from orchestrator.transport.ssh import SshTransport
from tests.agent.zipapps import make_test_zipapp
from tests.fixtures_sshd import StartSshd
from tests.sshd import Sshd, make_key


def read_all(channel: Channel) -> bytes:
    pieces = []
    while piece := channel.read():
        pieces.append(piece)
    return b"".join(pieces)


def run(host: Host, command: str, stdin: bytes = b"") -> bytes:
    """What the command writes to stdout."""
    channel = SshTransport().open(host, command, 30.0)
    try:
        if stdin:
            channel.write(stdin)
        return read_all(channel)
    finally:
        channel.close()


def refused(host: Host, timeout_s: float = 20.0) -> str:
    """The error of a connection that must not come about; nothing is left running."""
    before = threading.active_count()
    with pytest.raises(HostError) as caught:
        SshTransport().open(host, "echo in", timeout_s)
    assert threading.active_count() <= before
    return f"{caught.value.code}\n{render(caught.value)}"


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


def test_unknown_host_key(sshd: Sshd) -> None:
    """An unknown key is refused, with its fingerprint and the line that adds it."""
    sshd.known_hosts.write_text("")
    line = sshd.known_line("h0").strip()
    name, key_type, _ = line.split()
    assert refused(sshd.host("h0")) == (
        "host-key-unknown\n"
        f"error: the host key of `{name}` is not known: {key_type} {shown_fingerprint(sshd)}\n"
        " --> host h0\n"
        f"note: looked in {sshd.known_hosts}, /dev/null\n"
        "hint: on the host itself, this shows its keys to compare with:"
        " for k in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $k; done\n"
        f"hint: this adds the key: echo '{line}' >> {sshd.known_hosts}"
    )


def test_the_printed_line_adds_the_key(sshd: Sshd) -> None:
    """Running the hint's command makes the host known, and nothing else does."""
    sshd.known_hosts.write_text("")
    command = refused(sshd.host("h0")).rpartition("this adds the key: ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    assert run(sshd.host("h0"), "echo in") == b"in\n"


def test_changed_host_key(sshd: Sshd, tmp_path: Path) -> None:
    """A changed key is refused with both fingerprints and the place of the old one."""
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()
    name, key_type, _ = sshd.known_line("h0").split()
    sshd.known_hosts.write_text(f"# old\n{name} {other[0]} {other[1]}\n")
    text = refused(sshd.host("h0"))
    assert text.startswith(
        "host-key-changed\n"
        f"error: the host key of `{name}` has changed\n"
        " --> host h0\n"
        f"note: the host shows {key_type} {shown_fingerprint(sshd)}\n"
        f"note: known is {key_type} "
    )
    assert f"({sshd.known_hosts}:2)\n" in text
    assert text.endswith(f"ssh-keygen -R '{name}' -f {sshd.known_hosts}")


def test_known_key_type_is_asked_for_first(start_sshd: StartSshd) -> None:
    """A host with several keys of which only the RSA one is known is no mismatch."""
    sshd = start_sshd(key_types=["ed25519", "ecdsa", "rsa"])
    lines = sshd.known_line("h0").splitlines()
    for line in lines:
        sshd.known_hosts.write_text(f"{line}\n")
        assert run(sshd.host("h0"), "echo in") == b"in\n"


def test_accept_new(sshd: Sshd) -> None:
    """Only where the inventory says so, an unknown key is added."""
    sshd.known_hosts.unlink()
    host = sshd.host("h0", ssh_options={"StrictHostKeyChecking": "accept-new"})
    assert run(host, "echo in") == b"in\n"
    assert sshd.known_hosts.read_text() == sshd.known_line("h0")


def shown_fingerprint(sshd: Sshd) -> str:
    public = f"{sshd.host_keys[0]}.pub"
    shown = subprocess.run(["ssh-keygen", "-lf", public], check=True, capture_output=True)
    return shown.stdout.decode().split()[1]


HINT = "hint: check the user and the key: sgldbg uses ssh keys and the ssh agent only"


def test_wrong_key(sshd: Sshd, tmp_path: Path) -> None:
    """Every key that was tried is named, and what the host would take."""
    wrong = make_key(tmp_path / "wrong")
    locked = make_key(tmp_path / "locked", passphrase="secret")
    host = sshd.host("h0", identity_file=str(wrong), ssh_options={"CertificateFile": "none"})
    name = sshd.known_line("h0").split()[0]
    assert refused(host) == (
        "auth\n"
        f"error: the host does not let `{sshd.user}@{name}` in\n"
        " --> host h0\n"
        f"note: {wrong}: not accepted\n"
        "note: the host takes: publickey\n"
        f"{HINT}"
    )
    assert f"note: {locked}: needs its passphrase; `ssh-add {locked}` gives it to the agent\n" in (
        refused(sshd.host("h0", identity_file=str(locked)))
    )
    nothing = sshd.host("h0", identity_file=str(tmp_path / "none"))
    assert f"note: {tmp_path}/none: no such file\n" in refused(nothing)
    (tmp_path / "text").write_text("no key")
    assert f"note: {tmp_path}/text: is no key that can be used" in (
        refused(sshd.host("h0", identity_file=str(tmp_path / "text")))
    )


def test_no_key_at_all(sshd: Sshd) -> None:
    """The user's default keys are looked for; where there is none, that is said."""
    text = refused(sshd.host("h0", identity_file=None))
    assert "\nnote: there was no key to offer\nnote: the host takes: publickey\n" in text


def test_default_key_is_found(sshd: Sshd) -> None:
    """A key at its usual place needs no entry in the inventory."""
    folder = Path(os.environ["HOME"]) / ".ssh"
    folder.mkdir()
    shutil.copy(sshd.user_key, folder / "id_ed25519")
    assert run(sshd.host("h0", identity_file=None), "echo in") == b"in\n"


@contextmanager
def ssh_agent(path: Path, key: Path) -> Iterator[None]:
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        env = {**os.environ, "SSH_AUTH_SOCK": str(path)}
        subprocess.run(["ssh-add", "-q", str(key)], check=True, env=env, capture_output=True)
        yield
    finally:
        process.terminate()
        process.wait(30)


def test_key_of_the_ssh_agent(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's key is used; with `IdentitiesOnly` only where its public half is listed."""
    sock = Path(f"/tmp/sgldbg-test-{os.getpid()}.sock")
    private = tmp_path / "gone"
    shutil.copy(sshd.user_key, private)
    shutil.copy(f"{sshd.user_key}.pub", f"{private}.pub")
    with ssh_agent(sock, private):
        private.unlink()
        by_agent = {"IdentityAgent": str(sock), "IdentitiesOnly": "no"}
        assert run(sshd.host("h0", identity_file=None, ssh_options=by_agent), "echo in") == b"in\n"
        by_agent["IdentitiesOnly"] = "yes"
        assert refused(sshd.host("h0", identity_file=None, ssh_options=by_agent)).startswith("auth")
        listed = sshd.host("h0", identity_file=str(private), ssh_options=by_agent)
        assert run(listed, "echo in") == b"in\n"
        by_agent["IdentityAgent"] = "SSH_AUTH_SOCK"
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        assert run(sshd.host("h0", identity_file=str(private), ssh_options=by_agent), "pwd")


def test_certificate_of_the_user(sshd: Sshd, tmp_path: Path) -> None:
    """A certificate beside the key is offered before the plain key."""
    authority, key = make_key(tmp_path / "ca"), make_key(tmp_path / "key")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", sshd.user, f"{key}.pub"]
    subprocess.run(sign, check=True)
    allowed = Path(f"{sshd.user_key}.pub")
    allowed.write_text(f"cert-authority {(tmp_path / 'ca.pub').read_text()}")
    assert run(sshd.host("h0", identity_file=str(key)), "echo in") == b"in\n"


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


def write_config(tmp_path: Path, sshd: Sshd, *lines: str) -> dict[str, str]:
    """A configuration file that knows the key and the known hosts for every host."""
    path = tmp_path / "ssh_config"
    common = [
        "Host *",
        f"  UserKnownHostsFile {sshd.known_hosts}",
        "  GlobalKnownHostsFile /dev/null",
        f"  IdentityFile {sshd.user_key}",
        "  IdentitiesOnly yes",
        "  IdentityAgent none",
        f"  User {sshd.user}",
    ]
    path.write_text("\n".join([*lines, *common]) + "\n")
    return {"ConfigFile": str(path)}


def jump_config(tmp_path: Path, sshd: Sshd, *names: str) -> dict[str, str]:
    lines = []
    for name in names:
        played = sshd.host(name)
        lines += [f"Host {name}", f"  HostName {played.address}", f"  Port {played.port}"]
    lines += ["Host target", f"  ProxyJump {','.join(names)}"]
    return write_config(tmp_path, sshd, *lines)


def test_jump_hosts(start_sshd: StartSshd, tmp_path: Path) -> None:
    """A chain of jump hosts is walked, each with its own key check, and closed with the channel."""
    sshd = start_sshd(names=["one", "two", "target"])
    options = jump_config(tmp_path, sshd, "one", "two")
    target = sshd.host("target")
    host = Host(
        "target", ssh_options={**options, "HostName": str(target.address)}, port=target.port
    )
    assert run(host, "echo $HOME").decode().strip() == str(sshd.home("target"))
    for name in ("one", "two", "target"):
        sshd.wait_closed(name)


def test_jump_host_that_refuses(start_sshd: StartSshd, tmp_path: Path) -> None:
    """The error names the jump host at which it happened, and nothing is left open."""
    sshd = start_sshd(names=["one", "two", "target"])
    options = jump_config(tmp_path, sshd, "one", "two")
    two = sshd.host("two")
    kept = [line for line in sshd.known_hosts.read_text().splitlines() if str(two.port) not in line]
    sshd.known_hosts.write_text("\n".join(kept) + "\n")
    target = sshd.host("target")
    host = Host(
        "target", ssh_options={**options, "HostName": str(target.address)}, port=target.port
    )
    text = refused(host)
    assert text.startswith(
        f"host-key-unknown\nerror: the host key of `[{two.address}]:{two.port}` is not known: "
    )
    assert "\nnote: this was on the way, at the jump host `two`\n" in text
    sshd.wait_closed("one")


def test_target_behind_a_jump_host_is_down(start_sshd: StartSshd, tmp_path: Path) -> None:
    """What the jump host cannot reach is named from its side."""
    sshd = start_sshd(names=["one"])
    options = jump_config(tmp_path, sshd, "one")
    with socket.create_server(("127.0.0.9", 0)) as free:
        port = free.getsockname()[1]
    text = refused(Host("target", ssh_options={**options, "HostName": "127.0.0.9"}, port=port))
    address = sshd.host("one").address
    assert text.startswith(
        f"unreachable\nerror: 127.0.0.9 port {port} is not reached from {address}: "
    )
    sshd.wait_closed("one")


def test_circle_of_jump_hosts(sshd: Sshd, tmp_path: Path) -> None:
    """Hosts that each jump through the other end in an error, not in a hang."""
    lines = ["Host a", "  ProxyJump b", "Host b", "  ProxyJump a"]
    text = refused(Host("a", ssh_options=write_config(tmp_path, sshd, *lines)))
    assert text.startswith(
        "unreachable\nerror: more than 8 jump hosts, or a circle of them, lie before `"
    )


def test_proxy_command(sshd: Sshd) -> None:
    """A proxy command carries the connection and is gone afterwards."""
    script = (
        "import socket,sys,threading;"
        "s=socket.create_connection((sys.argv[1],int(sys.argv[2])));"
        "f=lambda:[sys.stdout.buffer.write(d) or sys.stdout.flush()"
        " for d in iter(lambda:s.recv(65536),b'')];"
        "threading.Thread(target=f,daemon=True).start();"
        "import os;[s.sendall(d) for d in iter(lambda:os.read(0,65536),b'')]"
    )
    path = sshd.folder / "proxy.py"
    path.write_text(script)
    options = {"ProxyCommand": f"python3 {path} %h %p"}
    assert run(sshd.host("h0", ssh_options=options), "echo in") == b"in\n"
    sshd.wait_closed("h0")


def test_proxy_command_that_fails(sshd: Sshd) -> None:
    """What a proxy command says before it gives up is shown."""
    options = {"ProxyCommand": "sh -c 'echo no route today >&2; exit 1'"}
    text = refused(sshd.host("h0", ssh_options=options), timeout_s=3.0)
    assert text.startswith("unreachable\nerror: ")
    assert text.endswith("the last lines from the host:\n  | no route today")


def test_stopped_server_behind_a_jump_host_is_noticed(
    start_sshd: StartSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel cannot watch the link, sshd itself is asked whether it is there."""
    monkeypatch.setattr("orchestrator.transport.channel._ASK_EVERY_S", 0.2)
    monkeypatch.setattr("orchestrator.transport.channel._SILENT_S", 1.5)
    sshd = start_sshd(names=["one", "target"])
    target = sshd.host("target")
    options = {**jump_config(tmp_path, sshd, "one"), "HostName": str(target.address)}
    channel = SshTransport().open(
        Host("target", ssh_options=options, port=target.port), "echo ready; cat", 30.0
    )
    assert channel.read() == b"ready\n"
    sshd.kill_connections("target", signal.SIGSTOP)
    with pytest.raises(HostError) as caught:
        channel.read()
    assert str(caught.value) == "lost the connection: no answer for 1.5 s"
    channel.close()
    sshd.kill_connections("target", signal.SIGCONT)


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


def test_no_agent_forwarding(sshd: Sshd, tmp_path: Path) -> None:
    """The user's ssh agent is never lent to a host, also where the configuration says so."""
    options = {"ForwardAgent": "yes"}
    host = sshd.host("h0", ssh_options=options)
    assert run(host, "echo [$SSH_AUTH_SOCK]") == b"[]\n"


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


def test_fingerprint_is_openssh_s(sshd: Sshd) -> None:
    """The fingerprint in messages is the one that `ssh-keygen -lf` prints."""
    import base64

    blob = base64.b64decode(Path(f"{sshd.host_keys[0]}.pub").read_text().split()[1])
    assert fingerprint(blob) == shown_fingerprint(sshd)
