"""A real systemd beside the machine's own life: process 1 of namespaces of its own.

Its units, its journal and its runtime directory lie in memory that only it sees, and of the units
of the machine it knows none: the usual ones would apply kernel variables and clear /tmp.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from orchestrator.onhost.agent.proc import procfs
from tests.onhost.process.conftest import wait_for

SYSTEMD = Path("/lib/systemd/systemd")
_UNSHARE = ["unshare", "--pid", "--mount", "--cgroup", "--fork", "--kill-child", "--mount-proc"]
# What every unit is ordered after or against by default; empty ones do.
_TARGETS = ("sysinit", "basic", "shutdown", "sgldbg")
_JOURNAL_SERVICE = """[Unit]
DefaultDependencies=no
[Service]
ExecStart=/lib/systemd/systemd-journald
Type=notify
Sockets=systemd-journald.socket
StandardOutput=null
FileDescriptorStoreMax=4224
"""
_JOURNAL_SOCKET = """[Unit]
DefaultDependencies=no
[Socket]
ListenStream=/run/systemd/journal/stdout
ListenDatagram=/run/systemd/journal/socket
SocketMode=0666
PassCredentials=yes
Service=systemd-journald.service
"""
_JOURNAL = "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nRuntimeMaxUse=16M\n"
# Arguments: a folder with `units` and `etc`. Only this systemd sees what is mounted here.
_BOOT = """set -e
mount -t tmpfs none /run
mount -t tmpfs none /usr/lib/systemd/system-generators
mount -t tmpfs none /var/lib/systemd
mount --bind "$0/units" /usr/lib/systemd/system
mount --bind "$0/etc" /etc/systemd
mount -t cgroup2 none /sys/fs/cgroup
mkdir /run/lock
exec env -i container=sgldbg PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    /lib/systemd/systemd --system --unit=sgldbg.target --log-target=journal --show-status=0
"""


def find_hindrance() -> str:
    """Why no real systemd can be started here; empty where one can."""
    if os.geteuid() != 0:
        return "it needs root"
    if not SYSTEMD.exists() or not Path("/usr/bin/systemd-run").exists():
        return "not installed"
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "it needs unshare and nsenter"
    try:
        with _Group("probe") as group:
            line = "mount -t cgroup2 none /sys/fs/cgroup && mount -t tmpfs none /run"
            done = subprocess.run(
                group.make_command(["sh", "-c", line]),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=20,
            )
    except OSError:
        return "no cgroups of version 2"
    return "" if done.returncode == 0 else "no namespaces"


class _Group:
    """A cgroup of version 2, removed with all that systemd made below it."""

    def __init__(self, name: str) -> None:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        mounts = [line.split()[4] for line in lines if " - cgroup2 " in line]
        if not mounts:
            raise FileNotFoundError("cgroup2")
        self.path = Path(mounts[0]) / f"sgldbg-test-{name}-{os.getpid()}"

    def __enter__(self) -> _Group:
        self.path.mkdir()
        return self

    def __exit__(self, *error: object) -> None:
        wait_for(lambda: "populated 0" in (self.path / "cgroup.events").read_text(), "its end")
        for folder, _, _ in os.walk(self.path, topdown=False):
            os.rmdir(folder)

    def make_command(self, command: list[str]) -> list[str]:
        """The command in namespaces of its own, of which this group is the root."""
        enter = f'echo $$ >{self.path}/cgroup.procs && exec "$@"'
        return ["sh", "-c", enter, "sh", *_UNSHARE, *command]


class RealSystemd:
    """A running manager; `enter` is the way in, as of a container."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sgldbg-test-", dir="/tmp"))
        self._group = _Group("systemd").__enter__()
        self._write_units()
        command = self._group.make_command(["sh", "-c", _BOOT, str(self._folder)])
        with open(self._folder / "log", "wb") as log:
            null = subprocess.DEVNULL
            self._shell = subprocess.Popen(command, stdin=null, stdout=log, stderr=log)
        try:
            self.pid = wait_for(self._find_manager, "process 1")
            wait_for(self._is_up, "the target")
        except BaseException:
            self.close()
            raise

    def _write_units(self) -> None:
        units, etc = self._folder / "units", self._folder / "etc"
        (etc / "system").mkdir(parents=True)
        units.mkdir()
        for name in _TARGETS:
            (units / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        wanted = "Wants=systemd-journald.socket systemd-journald.service\n"
        with open(units / "sgldbg.target", "a") as file:
            file.write(wanted)
        (units / "systemd-journald.service").write_text(_JOURNAL_SERVICE)
        (units / "systemd-journald.socket").write_text(_JOURNAL_SOCKET)
        (etc / "journald.conf").write_text(_JOURNAL)

    def _find_manager(self) -> int | None:
        if self._shell.poll() is not None:
            raise AssertionError(f"it ended: {(self._folder / 'log').read_text()}")
        tree = procfs.find_tree(self._shell.pid, procfs.read_all())
        return next((stat.pid for stat in tree if stat.comm == "systemd"), None)

    def _is_up(self) -> bool:
        command = [*self.enter, "systemctl", "is-active", "sgldbg.target"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        return done.stdout.strip() == b"active"

    @property
    def enter(self) -> tuple[str, ...]:
        """What stands before a command that is to run inside."""
        return ("nsenter", "-t", str(self.pid), "-m", "-p", "-C", "--")

    @property
    def units(self) -> Path:
        """Where an administrator's units lie."""
        return self._folder / "etc" / "system"

    @property
    def runtime(self) -> Path:
        """Where units lie that are gone after a reboot, as seen from here."""
        return Path(f"/proc/{self.pid}/root/run/systemd/system")

    def outer(self, pid: int) -> int:
        """Our number of a process that has this one inside."""
        space = procfs.read_link(f"/proc/{self.pid}/ns/pid")
        for number in procfs.list_pids():
            last = procfs.read_status(number).get("NSpid", "").split()[-1:]
            if last == [str(pid)] and procfs.read_link(f"/proc/{number}/ns/pid") == space:
                return number
        raise AssertionError(f"no process {pid} inside")

    def close(self) -> None:
        """End it with all that it runs."""
        self._shell.kill()  # --kill-child ends process 1, and with it everything inside
        self._shell.wait(30)
        self._group.__exit__()
        shutil.rmtree(self._folder)
