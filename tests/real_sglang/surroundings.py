"""Surroundings that no freshly started process has, for a server that somebody starts by hand."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.onhost.agent.proc.mempolicy import set_policy
from tests.real_sglang import server

# Nicer by one: odd enough to be seen, and no slower where others are at work too.
UMASK, NICE, OOM_SCORE_ADJ, GROUPS = 0o027, 1, 77, (5, 7)
NUMA_POLICY = "bind:0"


def make_odd(cpus: Sequence[int], cgroup: Path | None) -> Callable[[], None]:
    """What the first process does before it becomes a server; runs as root.

    `SIGHUP` is ignored by everyone whom `nohup` starts, which the launching does itself.
    """

    def prepare() -> None:
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text("0")
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE_ADJ))
        os.setgroups(GROUPS)
        os.umask(UMASK)
        os.nice(NICE)
        os.sched_setaffinity(0, cpus)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        # No machine needs a right for this; SGLang tries to raise the soft one, and says so.
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, most if most < 0 else most - 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 1 << 20))
        set_policy(NUMA_POLICY)

    return prepare


@contextmanager
def own_cgroup(name: str) -> Iterator[Path | None]:
    """A cgroup for one server, gone when the server is; `None` where none can be made."""
    parents = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
    folder = next((p / name for p in parents if (p / "cgroup.procs").exists()), None)
    try:
        if folder is None:
            raise FileNotFoundError("no hierarchy below /sys/fs/cgroup")
        folder.mkdir()
    except OSError as error:
        print(f"servers run in the test's own cgroup: {error}", file=sys.stderr)
        yield None
        return
    try:
        yield folder
    finally:
        members = folder / "cgroup.procs"
        server.wait_for(lambda: not members.read_text(), 30, lambda: f"{folder} is in use")
        folder.rmdir()
