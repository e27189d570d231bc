"""A whole cluster on this machine: hosts behind SSH, and a server that somebody has started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from orchestrator.demo import keys, launch, layout, processes
from orchestrator.demo.layout import DemoError, DemoHost, FileFact
from orchestrator.demo.processes import ServerFacts
from orchestrator.demo.sshd import Sshd, silence_log

USER = "demo"
ALGORITHMS = ("EAGLE", "EAGLE3")
# Every life of the miniature ends with the process that made the cluster, even by SIGKILL.
OWNER = "SGLANG_MINIATURE_OWNER"
# What a login shell has wherever it runs; all else about a host is its own.
INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME")


class Cluster:
    """An open cluster; everything about it lies below `workdir`.

    `inventory` and `session` are the files to give to `sgldbg`, `url` is where the server answers
    as seen from its first host. Made by `open_cluster`; to be closed, or used in `with`.
    """

    def __init__(self, workdir: Path, hosts: int, algorithm: str) -> None:
        self.workdir = workdir
        self.hosts: tuple[DemoHost, ...] = ()
        self.algorithm = algorithm
        self.inventory = workdir / "inventory.yaml"
        self.session = workdir / "sessions" / f"{layout.SESSION}.yaml"
        self.url = ""
        self.children: tuple[subprocess.Popen[bytes], ...] = ()
        self._names = [f"demo-{rank}" for rank in range(hosts)]
        self._ports: tuple[int, ...] = ()
        self._closing = ExitStack()

    def open(self) -> None:
        """Make and start everything; where that fails, all of it is undone again."""
        with ExitStack() as stack:
            self._make_workdir(stack)
            patch = layout.read_patch_source()
            inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
            inherited[OWNER] = f"{os.getpid()} {processes.read_start_time(os.getpid())}"
            self.hosts = tuple(
                layout.make_host(self.workdir / "hosts" / name, name, rank, inherited)
                for rank, name in enumerate(self._names)
            )
            stack.callback(self._end_processes)
            started = launch.start_server(self.hosts, self.algorithm)
            self.children, self._ports = started.children, started.ports
            self.url = f"http://127.0.0.1:{self._ports[0]}"
            self._write_files(patch, started.command, self._open_sshds(stack))
            self._closing = stack.pop_all()

    def close(self) -> None:
        """End the SSH servers and every process on the hosts; remove `workdir` if we made it."""
        self._closing.close()

    def snapshot(self) -> dict[str, FileFact]:
        """All files of all installs; two equal snapshots mean the very same files."""
        return layout.read_facts(self.hosts)

    def server_facts(self) -> dict[str, ServerFacts | None]:
        """For each host the main process that runs there now, whoever started it."""
        for child in self.children:
            child.poll()  # one that a session has ended is ours to reap
        return {host.name: processes.find_server(host.home, launch.MODULE) for host in self.hosts}

    def generate(self, text: str, max_new_tokens: int = 16) -> dict[str, Any]:
        """The server's answer; `OSError` where nobody answers, or not with text."""
        sampling = {"max_new_tokens": max_new_tokens, "temperature": 0}
        body = json.dumps({"text": text, "sampling_params": sampling})
        status, data = launch.request(self._ports[0], "POST", "/generate", body)
        if status != 200:
            raise OSError(f"/generate answered {status}: {data[:200]!r}")
        answer: dict[str, Any] = json.loads(data)
        return answer

    def _make_workdir(self, stack: ExitStack) -> None:
        """What was not there before is removed at the end."""
        try:
            self.workdir.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            if not self.workdir.is_dir() or any(self.workdir.iterdir()):
                raise DemoError(f"{self.workdir} is there and is not an empty directory") from None
        else:
            stack.callback(shutil.rmtree, self.workdir, ignore_errors=True)

    def _end_processes(self) -> None:
        processes.end_all([host.home for host in self.hosts])
        for child in self.children:
            child.wait()

    def _open_sshds(self, stack: ExitStack) -> list[Sshd]:
        """One SSH server per host, and the files by which a client trusts and is trusted."""
        silence_log()
        folder = self.workdir / "keys"
        folder.mkdir(mode=0o700)
        user_key = keys.make_private_key()
        sshds = []
        for host in self.hosts:
            sshd = Sshd(
                user=USER,
                user_key=keys.parse_private_key(user_key),
                host_key=keys.parse_private_key(keys.make_private_key()),
                home=host.home,
                env=host.env,
            )
            stack.callback(sshd.close)
            sshds.append(sshd)
        keys.write_private_key(folder / "id_ed25519", user_key)
        known = {(sshd.address, sshd.port): sshd.host_key for sshd in sshds}
        (folder / "known_hosts").write_text(keys.known_hosts_text(known))
        return sshds

    def _write_files(self, patch: bytes, command: Sequence[str], sshds: list[Sshd]) -> None:
        patches = self.workdir / "patches"
        patches.mkdir()
        (patches / f"{layout.PATCH}.yaml").write_bytes(patch)
        self.session.parent.mkdir()
        self.session.write_text(layout.session_text())
        text = layout.inventory_text(
            [(host, sshd.port) for host, sshd in zip(self.hosts, sshds, strict=True)],
            command=command,
            url=self.url,
            keys=self.workdir / "keys",
            user=USER,
        )
        self.inventory.write_text(text)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_cluster(workdir: Path, hosts: int = 2, algorithm: str = "EAGLE") -> Cluster:
    """Lay out hosts, start one server over all of them and their SSH servers; ready on return.

    `workdir` is made where it does not exist, and then removed at the end; otherwise it must be
    empty. `algorithm` is `EAGLE`, which has the fault that the session looks for, or `EAGLE3`.
    `DemoError` where it cannot be done; nothing runs then.
    """
    if algorithm not in ALGORITHMS:
        raise DemoError(f"the miniature knows {' and '.join(ALGORITHMS)}, not {algorithm}")
    if not 1 <= hosts <= launch.MOST_NODES:
        raise DemoError(f"a cluster has 1 to {launch.MOST_NODES} hosts, not {hosts}")
    cluster = Cluster(workdir.absolute(), hosts, algorithm)
    cluster.open()
    return cluster
