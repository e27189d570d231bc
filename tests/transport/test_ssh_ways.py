"""Jump hosts and proxy commands on the way to a real OpenSSH server."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.ssh import SshTransport
from tests.fixtures_sshd import StartSshd
from tests.sshd import Sshd
from tests.transport.opening import refused, run


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
