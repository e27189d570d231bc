"""A link that dies without a word is noticed within 15 s, idle or not."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.errors import HostError
from orchestrator.model.inventory import Host
from orchestrator.transport.base import Channel
from orchestrator.transport.ssh import SshTransport
from tests.sshd import Sshd, find_sshd


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def can_cut_links() -> bool:
    """Whether this user may make a network namespace (root on most machines)."""
    if shutil.which("ip") is None or os.getuid() != 0:
        return False
    name = f"sgldbg-can-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made.returncode == 0


@dataclass
class FarHost:
    """An sshd in a network namespace, behind a cable that can be cut."""

    host: Host
    namespace: str
    far_end: str

    def cut(self) -> None:
        ip("netns", "exec", self.namespace, "ip", "link", "set", self.far_end, "down")


@pytest.fixture
def far_host(tmp_path: Path) -> Iterator[FarHost]:
    """A host whose port and addresses exist only in a namespace of this test."""
    if not can_cut_links():
        pytest.skip("needs root and `ip netns` to cut a link")
    number = os.getpid() % 60000
    namespace, near, far = f"sgldbg-{number}", f"sgn{number}", f"sgf{number}"
    net = f"10.{200 + number // 16384}.{number // 64 % 256}.{number % 64 * 4}".rsplit(".", 1)
    address = f"{net[0]}.{int(net[1]) + 2}"
    sshd = Sshd(tmp_path / "sshd")  # for its keys and its configuration; never started
    played = sshd.host("h0")
    ip("netns", "add", namespace)
    process = None
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", namespace)
        ip("addr", "add", f"{net[0]}.{int(net[1]) + 1}/30", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", namespace, "addr", "add", f"{address}/30", "dev", far)
        ip("-n", namespace, "link", "set", far, "up")
        config = tmp_path / "sshd" / "h0" / "sshd_config"
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        process = subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                namespace,
                find_sshd(),
                "-D",
                "-e",
                "-p",
                "22",
                "-f",
                str(config),
            ],
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        key = Path(f"{sshd.host_keys[0]}.pub").read_text()
        sshd.known_hosts.write_text(f"{address} {key}")
        host = Host(
            "far", address, played.user, 22, played.identity_file, ssh_options=played.ssh_options
        )
        yield FarHost(host, namespace, far)
    finally:
        pids = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, check=False)
        for pid in pids.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if process is not None:
            process.kill()
            process.wait(30)
        subprocess.run(["ip", "link", "del", near], capture_output=True, check=False)
        ip("netns", "del", namespace)
        sshd.stop()


def open_patiently(host: Host) -> Channel:
    """Open once the server listens."""
    until = time.monotonic() + 30
    while True:
        try:
            return SshTransport().open(host, "echo ready; cat >/dev/null", 10.0)
        except HostError as error:
            if error.code != "unreachable" or time.monotonic() > until:
                raise


def seconds_until_lost(channel: Channel, data: bytes) -> float:
    started_s = time.monotonic()
    if data:
        channel.write(data)
    with pytest.raises(HostError) as caught:
        channel.read()
    assert caught.value.code == "lost"
    # The second: the kernel's word once the neighbour's address can no longer be found out.
    assert str(caught.value) in (
        "lost the connection: the host does not answer any more",
        "lost the connection: no route to host",
    )
    return time.monotonic() - started_s


def test_dead_link_is_noticed(far_host: FarHost) -> None:
    """Neither a reader that waits nor a writer whose bytes are not taken waits longer."""
    idle, busy = open_patiently(far_host.host), open_patiently(far_host.host)
    assert idle.read() == busy.read() == b"ready\n"
    far_host.cut()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(seconds_until_lost, (idle, busy), (b"", b"x" * 100)))
    assert max(found) <= 15.0
    idle.close()
    busy.close()
