"""Containers to enter: the kernel's own namespaces, and podman where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from orchestrator.onhost.agent.proc import procfs
from tests.onhost.process.conftest import wait_for

from .conftest import Bench

# Begins in the directory of the package, as a way into a container leads to its root.
_GO = ("sh", "-c", 'cd "$0" && exec "$@"')


class Container:
    """What both engines have in common; a container ends with its main process."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.env = {name: os.environ[name] for name in ("HOME", "TMPDIR", "SGLDBG_STATE")}

    @property
    def enter(self) -> tuple[str, ...]:
        """What stands in the inventory."""
        raise NotImplementedError

    def run(self, *command: str) -> None:
        """Start something inside that outlives the way in, and wait until it says that it is up."""
        ready = f"{self.bench.folder}/inside.ready"
        line = f'READY={ready} setsid --fork "$@" >>server.log 2>&1 </dev/null'
        inside = ["sh", "-c", line, "sh", *command]
        self.do(*_GO, str(self.bench.folder), *inside)
        wait_for(lambda: self.succeeds("test", "-e", ready), "the server inside")

    def do(self, *command: str) -> None:
        """Run a command inside to its end."""
        subprocess.run([*self.enter, *command], stdin=subprocess.DEVNULL, check=True, timeout=60)

    def succeeds(self, *command: str) -> bool:
        """Whether a command inside ends well."""
        done = subprocess.run([*self.enter, *command], stdin=subprocess.DEVNULL, timeout=60)
        return done.returncode == 0


class Namespaces(Container):
    """Process and mount namespaces that `nsenter` leads into; the files are the machine's."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._shells: list[subprocess.Popen[bytes]] = []
        self._main = 0

    @property
    def enter(self) -> tuple[str, ...]:
        return ("nsenter", "-t", str(self._main), "-m", "-p", "--")

    def start(self, *command: str) -> None:
        """Run the container's main process, as process 1 of its own."""
        argv = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "setsid", *command]
        env = {**os.environ, "READY": str(self.bench.folder / "main.ready")}
        null = subprocess.DEVNULL
        with open(self.bench.stderr, "ab") as log:
            shell = subprocess.Popen(
                argv, env=env, cwd=self.bench.folder, stdin=null, stdout=null, stderr=log
            )
        self._shells.append(shell)
        self._main = wait_for(lambda: self._find_main(shell.pid), "the container")

    def _find_main(self, shell: int) -> int | None:
        for stat in procfs.find_tree(shell, procfs.read_all())[1:]:
            first = procfs.read_status(stat.pid).get("NSpid", "").endswith("\t1")
            name = os.path.basename(procfs.read_title(stat.pid))
            if first and not name.startswith(("unshare", "setsid")):
                return stat.pid
        return None

    def stop(self) -> None:
        """End it with everything inside."""
        os.kill(self._main, 9)
        self._shells[-1].wait(30)

    def again(self) -> None:
        """Start it once more; what it had written is still there."""
        self.start("sleep", "600")

    def close(self) -> None:
        """End all that was started."""
        for shell in self._shells:
            if shell.poll() is None:
                for stat in procfs.find_tree(shell.pid, procfs.read_all())[1:2]:
                    os.kill(stat.pid, 9)
            shell.wait(30)


class Podman(Container):
    """A container of podman over the machine's own files, all that it writes in a layer above.

    The options are those that runc needs where the hard limits cannot be raised and cgroups are
    of both versions; `:O` spares an image, and the second that copying one takes.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        # podman takes no more than 50 characters here, for the sockets that it puts below.
        self._folder = Path(tempfile.mkdtemp(prefix="sgldbg-test-", dir="/tmp"))
        folder = self._folder
        self.name = f"sgldbg-test-{bench.package}"
        self._podman = [
            *("podman", "--runtime", shutil.which("runc") or "/usr/sbin/runc"),
            *("--cgroup-manager=cgroupfs", "--events-backend=file"),
            *("--root", str(folder / "root"), "--runroot", str(folder / "run")),
        ]

    @property
    def enter(self) -> tuple[str, ...]:
        env = [f"--env={name}={value}" for name, value in self.env.items()]
        return (*self._podman, "exec", "-i", *env, self.name)

    def start(self, *command: str) -> None:
        """Run the container's main process."""
        limits = ["--ulimit", "nofile=20000:20000", "--ulimit", "nproc=32768:32768"]
        self._call("run", "-d", "--name", self.name, *limits, "--network", "none", "--rootfs",
                   "/:O", *command)  # fmt: skip

    def stop(self) -> None:
        """End it with everything inside; the layer stays."""
        self._call("stop", "-t", "0", self.name)

    def again(self) -> None:
        """Start it once more."""
        self._call("start", self.name)

    def close(self) -> None:
        """Remove it with its layer."""
        self._call("rm", "-f", "-t", "0", self.name)
        shutil.rmtree(self._folder)

    def _call(self, *words: str) -> None:
        subprocess.run(
            [*self._podman, *words],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
