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


@dataclass(frozen=True)
class Cable:
    """Two ends of a virtual cable, one of them in a network namespace."""

    namespace: str
    near_end: str
    far_end: str
    address: str
    near_address: str

    @property
    def enter(self) -> tuple[str, ...]:
        """Words before a command that is to run at the far end."""
        return ("ip", "netns", "exec", self.namespace)

    def far(self, *words: str) -> None:
        """Run `ip` at the far end."""
        ip("-n", self.namespace, *words)

    def cut(self) -> None:
        """From now on nothing arrives, and nobody is told but the kernels."""
        self.far("link", "set", self.far_end, "down")

    def mute(self) -> None:
        """Nothing arrives though both ends have their link: as behind a dead switch."""
        nobody = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
        ip("neigh", "replace", self.address, *nobody, "dev", self.near_end)
        self.far("neigh", "replace", self.near_address, *nobody, "dev", self.far_end)

    def mend(self) -> None:
        """Let everything through again."""
        self.far("link", "set", self.far_end, "up")
        for run, address, end in (
            (ip, self.address, self.near_end),
            (self.far, self.near_address, self.far_end),
        ):
            with contextlib.suppress(subprocess.CalledProcessError):  # forgotten by itself
                run("neigh", "del", address, "dev", end)

    def end_processes(self) -> None:
        """Kill what still runs at the far end."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end_connections(self) -> int:
        """Kill those processes of sshd that serve somebody; how many there were."""
        titles = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self._pids()}
        found = [pid for pid, title in titles.items() if title.startswith(b"sshd: root")]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return len(found)

    def _pids(self) -> list[int]:
        words = ["ip", "netns", "pids", self.namespace]
        found = subprocess.run(words, capture_output=True, check=False)
        return [int(pid) for pid in found.stdout.split()]


@pytest.fixture
def cable() -> Iterator[Cable]:
    """A cable between this machine and a namespace, made for one test."""
    if not can_cut_links():
        pytest.skip("needs root and `ip netns` to cut a link")
    number = os.getpid() % 60000
    network = f"10.{200 + number // 16384}.{number // 64 % 256}"
    first = number % 64 * 4
    made = Cable(
        namespace=f"sgldbg-{number}",
        near_end=f"sgn{number}",
        far_end=f"sgf{number}",
        address=f"{network}.{first + 2}",
        near_address=f"{network}.{first + 1}",
    )
    ip("netns", "add", made.namespace)
    try:
        pair = ("type", "veth", "peer", "name", made.far_end, "netns", made.namespace)
        ip("link", "add", made.near_end, *pair)
        ip("addr", "add", f"{made.near_address}/30", "dev", made.near_end)
        ip("link", "set", made.near_end, "up")
        made.far("addr", "add", f"{made.address}/30", "dev", made.far_end)
        made.far("link", "set", made.far_end, "up")
        yield made
    finally:
        made.end_processes()
        subprocess.run(["ip", "link", "del", made.near_end], capture_output=True, check=False)
        ip("netns", "del", made.namespace)


@pytest.fixture
def far_host(cable: Cable, tmp_path: Path) -> Iterator[Host]:
    """An sshd at the far end; its port and address exist only in the namespace."""
    sshd = Sshd(tmp_path / "sshd")  # for its keys and its configuration; never started
    played = sshd.host("h0")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    config = tmp_path / "sshd" / "h0" / "sshd_config"
    process = subprocess.Popen(
        [*cable.enter, find_sshd(), "-D", "-e", "-p", "22", "-f", str(config)],
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    key = Path(f"{sshd.host_keys[0]}.pub").read_text()
    sshd.known_hosts.write_text(f"{cable.address} {key}")
    yield Host(
        "far",
        cable.address,
        played.user,
        22,
        played.identity_file,
        ssh_options=played.ssh_options,
    )
    process.kill()
    process.wait(30)
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


def test_dead_link_is_noticed(far_host: Host, cable: Cable) -> None:
    """Neither a reader that waits nor a writer whose bytes are not taken waits longer."""
    idle, busy = open_patiently(far_host), open_patiently(far_host)
    assert idle.read() == busy.read() == b"ready\n"
    cable.cut()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(seconds_until_lost, (idle, busy), (b"", b"x" * 100)))
    assert max(found) <= 15.0
    idle.close()
    busy.close()
