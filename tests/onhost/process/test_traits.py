"""What the kernel notes of a process beside its files comes back with it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

import pytest

from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.proc.describe import describe
from orchestrator.onhost.agent.proc.traits import find_odd, read_traits
from orchestrator.onhost.agent.server import process

from .conftest import Stage, wait_for
from .test_start import AS_ROOT, NOBODY, end, start

RAW = ("Uid", "Gid", "SigBlk", "SigIgn", "NoNewPrivs", "THP_enabled", "CapInh", "CapBnd", "CapAmb")
# Says that it runs; an interpreter that every user may run.
WAITS = ["/usr/bin/python3", "-c", "import os,time; open(os.environ['READY'],'w'); time.sleep(60)"]


def read_raw(pid: int) -> dict[str, str]:
    """What the kernel says, without the words of the product."""
    status = procfs.read_status(pid)
    found = {name: status.get(name, "") for name in RAW}
    # The slack of another process is for root to read.
    for name in ("personality", "coredump_filter", "timerslack_ns")[: 3 if AS_ROOT else 2]:
        found[name] = Path(f"/proc/{pid}/{name}").read_text().strip()
    return found


def test_what_prctl_sets_comes_back(stage: Stage, open_dir):
    """Capabilities, personality, signals and the rest of what no file of a process shows."""
    stage.folder = open_dir

    def prepare() -> None:
        libc = ctypes.CDLL(None)
        libc.personality(0x0040000)  # ADDR_NO_RANDOMIZE, as `setarch -R`
        libc.prctl(29, 123456, 0, 0, 0)
        libc.prctl(41, 1, 0, 0, 0)
        Path("/proc/self/coredump_filter").write_text("0x7f")
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

    changed = ["setpriv", "--no-new-privs"]
    wanted = {"NoNewPrivs": "1", "THP_enabled": "0", "SigBlk": f"{1 << signal.SIGUSR2 - 1:016x}"}
    wanted.update(personality="00040000", coredump_filter="0000007f")
    if AS_ROOT:
        changed += ["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-net_raw"]
        changed += ["--inh-caps=+chown", "--ambient-caps=+chown"]
        wanted.update(timerslack_ns="123456", CapInh=f"{1:016x}", CapAmb=f"{1:016x}")
    child = stage.run([*changed, *WAITS], cwd="/", preexec_fn=prepare)
    before, raw = describe(child.pid), read_raw(child.pid)
    assert {name: raw[name] for name in wanted} == wanted
    assert signal.SIGUSR1 in before["ignored"]
    end(child, before)
    stage_file = open_dir / "ready1"
    stage_file.unlink()
    again = start(stage, before, None, None)
    wait_for(stage_file.exists, "the second life")
    assert read_raw(again["pid"]) == raw
    assert process.compare(before, again["pid"]) == []


@pytest.mark.skipif(not AS_ROOT, reason="only root may give a process two users")
def test_a_process_of_two_users(stage: Stage, open_dir):
    """A real user that is not the effective one stays what it was."""
    stage.folder = open_dir

    def prepare() -> None:
        os.setresgid(5, NOBODY, NOBODY)
        os.setresuid(0, NOBODY, NOBODY)

    child = stage.run(WAITS, cwd="/", preexec_fn=prepare)
    before = describe(child.pid)
    assert (before["uids"], before["gids"]) == ([0, NOBODY, NOBODY], [5, NOBODY, NOBODY])
    end(child, before)
    again = start(stage, before, None, None)
    assert process.compare(before, again["pid"]) == []
    assert describe(again["pid"])["uids"] == [0, NOBODY, NOBODY]


def test_entries_that_no_table_holds():
    """Doubled names and entries without one are told, values never are."""
    assert find_odd(b"A=1\0B=2\0A=3\0C=\0") == ["A 2 times"]
    assert find_odd(b"secret\0=x\0A=1\0") == ["2 without a name"]
    assert find_odd(b"") == []


def test_what_the_c_library_ignores_is_not_the_servers():
    """What is spawned, as by make, ignores two signals that no program knows of."""
    code = "import time; time.sleep(60)"
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    try:
        assert read_traits(pid)["ignored"] == read_traits(os.getpid())["ignored"]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
