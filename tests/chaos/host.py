"""A host for breaking: its install on a disk of its own, its server a small tree of processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from orchestrator.onhost.agent.held import journal, lease
from orchestrator.onhost.agent.held.facts import Facts
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.session import recover
from tests.chaos import disks
from tests.onhost.transaction.place import Place, wait_for

# Main process and two workers; it ends them on SIGTERM as a server does.
_SCRIPT = 'trap "kill $a $b; exit 0" TERM; sleep %d & a=$!; sleep %d & b=$!; wait'
ORIGINAL = ("sh", "-c", _SCRIPT % (86401, 86402))
DEBUG = ("sh", "-c", _SCRIPT % (86411, 86412))
_SIZE = 3

Shape = list[tuple[list[str], bool, list[str]]]


class BreakableHost(Place):
    """A host whose disks can be filled and made read-only.

    `kind` is the file system that the install is on; with an empty one nothing is mounted, as
    without the right to.
    """

    def __init__(self, directory: Path, kind: str) -> None:
        self.kind = kind
        self._mounts = [directory / "own", directory / "disk"] if kind else []
        for where in (directory / "own", directory / "disk"):
            where.mkdir(parents=True)
        for where, what in zip(self._mounts, ("tmpfs", kind), strict=False):
            disks.mount(what, where)
        (directory / "own" / "tmp").mkdir()
        tempfile.tempdir = str(directory / "own" / "tmp")
        super().__init__(directory / "own", directory / "disk")
        self.shape: Shape = []

    def start_server(self, argv: tuple[str, ...] = ORIGINAL) -> Any:
        """Start the tree and remember it."""
        with open(self.top / "server.log", "ab") as log:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
                env=self.environ(),
                start_new_session=True,
            )
        self.children.append(child)
        wait_for(lambda: len(self.find_shape()) == _SIZE)
        self.shape = self.find_shape()
        return lease.find_process(child.pid)

    def find_shape(self) -> Shape:
        """Command line and environment of this host's server processes, and who is below one."""
        pids = self.servers()
        found = []
        for pid in pids:
            stat = procfs.read_stat(pid)
            argv = procfs.parse_strings(procfs.read_cmdline(pid))
            environ = [f"{k}={v}" for k, v in sorted((procfs.read_environ(pid) or {}).items())]
            found.append((argv, stat is not None and stat.ppid in pids, environ))
        # Between fork and exec a worker still looks like its main process.
        argvs = [tuple(argv) for argv, _, _ in found]
        return sorted(found) if len(set(argvs)) == len(argvs) else []

    def fill(self) -> None:
        """Leave no free byte on any disk."""
        for where in self._mounts:
            disks.fill(where)

    def drain(self) -> None:
        """Give the space back."""
        for where in self._mounts:
            disks.drain(where)

    def remount(self, how: str) -> None:
        """Mount the install's disk `ro` or `rw`."""
        disks.remount(self.disk, how)

    def unmount(self) -> None:
        """Take the disks away; whoever still has a file open keeps it."""
        for where in self._mounts:
            disks.unmount(where)

    def has_session(self) -> bool:
        """Whether a session is here that was not filed away."""
        return os.path.exists(os.path.join(self.directory(), "journal.jsonl"))

    def find_guard(self) -> lease.Process | None:
        """The guard of the session that is here, while it runs."""
        if not self.has_session():
            return None
        known = Facts(journal.read(os.path.join(self.directory(), "journal.jsonl"))).guard
        guard = None if known is None else lease.Process(known["pid"], known["start_time"])
        return guard if guard is not None and lease.is_alive(guard) else None

    def end_servers(self) -> None:
        """SIGKILL to every process of its servers, as a reboot does.

        One that the session never described, or has forgotten at its end, is nobody's to start.
        """
        records = journal.read(os.path.join(self.directory(), "journal.jsonl"))
        forgotten = any((r["kind"], r.get("step")) == ("done", "finish") for r in records)
        if Facts(records).server is None or forgotten:
            self.shape = []
        for pid in self.servers():
            found = lease.find_process(pid)
            if found is not None:
                lease.end(found)

    def trace(self) -> str:
        """What the guard wrote down for itself."""
        path = Path(self.directory(), "guard.trace")
        return path.read_text() if path.exists() else ""

    def end_session(self) -> list[str]:
        """What the next contact does; what it could not."""
        if not self.has_session():
            return []
        self.expire()
        try:
            return [f"left: {text}" for text in recover.recover(self.directory())["left"]]
        except Refusal as refusal:
            return [f"refused: {refusal.code}: {refusal.message}"]

    def judge(self) -> list[str]:
        """What is not as it was before the session."""
        problems = [f"tree: {text}" for text in self.changes() if self._matters(text)]
        problems += [f"status: {item['state']}" for item in self.status()]
        problems += [f"tmp: {name}" for name in os.listdir(self.top / "tmp")]
        problems += [f"kept: {path}" for path in Path(self.state).glob("kept/*/*/*")]
        with contextlib.suppress(AssertionError):
            wait_for(lambda: self.find_shape() == self.shape and not self.guards(), 10.0)
        if self.find_shape() != self.shape:
            now, then = ([argv for argv, _, _ in s] for s in (self.find_shape(), self.shape))
            problems.append(f"server: {now}, was {then}, in the same environment or not")
        return problems + [f"guard {pid} still runs" for pid in self.guards()]

    def _matters(self, difference: str) -> bool:
        """All of them do, but that a file of an image is another one once it was renamed.

        An overlay copies it up then, which no later call takes back; links between files of the
        image end there as well, and a directory counts other links than before.
        """
        copied_up = ": inode was" in difference or ": nlink was" in difference
        return self.kind != "overlay" or not copied_up
