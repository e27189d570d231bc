"""A rank that dies without a word while the others wait for it fails the start, by its name."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import HostError
from orchestrator.onhost.agent.look.kernel import find_killed
from orchestrator.onhost.agent.proc import procfs
from orchestrator.servers import workers
from orchestrator.servers.ready import wait_ready
from orchestrator.session.hosts.fleet import Cancelled, Fleet
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps import watch
from orchestrator.session.steps.lives import DEBUG_LIFE
from tests.onhost.process.conftest import wait_for
from tests.session.test_undo import Heard

from .conftest import Bench

# Its workers take a title as setproctitle does. The main process waits for the word of one.
RANKS = """
import os, sys, time

def take_title(title):
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(title.encode().ljust(end - start, b"\\0"))

def work(rank):
    take_title("sglang::scheduler_TP%d" % rank)
    # By one write: print() makes two, and the lines of four ranks would mix.
    os.write(2, b"[2025-08-02 06:07:08 TP%d] Memory pool end.\\n" % rank)
    open(os.path.join(sys.argv[1], "up%d" % rank), "w").close()
    group = sys.argv[2] if rank == 2 else ""
    while not os.path.exists(os.path.join(sys.argv[1], "hog")):
        time.sleep(0.02)
    if group:
        open(group + "/cgroup.procs", "w").write(str(os.getpid()))
        hog = [bytearray(b"x" * (1 << 20)) for _ in range(512)]
    time.sleep(60)

reading, writing = os.pipe()
for rank in range(4):
    if os.fork() == 0:
        work(rank)
while not all(os.path.exists(os.path.join(sys.argv[1], "up%d" % rank)) for rank in range(4)):
    time.sleep(0.02)
open(os.environ["READY"], "w").close()
if sys.argv[3].startswith("follows"):
    os.wait()
    sys.exit(1)
os.read(reading, 1)
"""
WAITING = (
    "still there, waiting: sglang::scheduler_TP0, sglang::scheduler_TP1, sglang::scheduler_TP3"
)


class Ranks:
    """A starting server of four ranks."""

    def __init__(self, bench: Bench, group: str = "", ends: str = "stays") -> None:
        self.folder = bench.folder
        argv = [sys.executable, "-c", RANKS, str(bench.folder), group, ends + "padding" * 9]
        with open(bench.stderr, "ab") as log:
            self.main = bench.stage.run(argv, stderr=log)
        self.life = bench.life(self.main)

    def find(self, rank: int) -> int:
        """The process of one rank."""
        tree = procfs.find_tree(self.main.pid, procfs.read_all())
        wanted = f"sglang::scheduler_TP{rank}"
        return next(stat.pid for stat in tree if procfs.read_title(stat.pid) == wanted)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATIENCE_S", 0.3)


def wait(agent, bench: Bench, port: int, ranks: Ranks, act) -> HostError:
    """Wait for the server, and `act` once that has begun."""
    turns = iter([lambda: None, lambda: None, act])
    with pytest.raises(HostError) as error:
        wait_ready(
            agent, bench.server(port), ranks.life, 0, cancelled=lambda: next(turns, bool)() or False
        )
    return error.value


def test_a_rank_that_is_killed(agent, bench: Bench, port: int):
    """It is a zombie of a main process that waits: the start has failed, and the rank is named."""
    ranks = Ranks(bench)
    pid = ranks.find(2)
    error = wait(agent, bench, port, ranks, lambda: os.kill(pid, signal.SIGKILL))
    assert (error.code, error.message, error.notes, error.hints) == (
        "died",
        f"server `kimi` ended in part, {error.message.split()[5]} s after its start:"
        " sglang::scheduler_TP2 is gone without a word, and the rest waits for it",
        (WAITING,),
        (),
    )
    assert sorted(error.tail) == [
        f"[2025-08-02 06:07:08 TP{rank}] Memory pool end." for rank in range(4)
    ]


@pytest.mark.parametrize(
    ("killed", "message", "notes"),
    [
        (
            (2,),
            "server `kimi` ended in part: sglang::scheduler_TP2 is gone without a word, and the"
            " rest waits for it",
            (WAITING, DEBUG_LIFE),
        ),
        (
            (1, 2),
            "server `kimi` ended in part: sglang::scheduler_TP1, sglang::scheduler_TP2 are gone"
            " without a word, and the rest waits for them",
            ("still there, waiting: sglang::scheduler_TP0, sglang::scheduler_TP3", DEBUG_LIFE),
        ),
        ((), "server `kimi` ended with signal 9 (SIGKILL)", (DEBUG_LIFE,)),
    ],
    ids=["rank", "ranks", "main"],
)
def test_a_ready_server_that_dies(
    agent, bench: Bench, monkeypatch, killed: tuple[int, ...], message: str, notes: tuple[str, ...]
):
    """While it is observed: the fleet is asked to stop, by name and with the last words."""
    monkeypatch.setattr(watch, "_LOOK_S", 0.05)
    ranks = Ranks(bench)
    member = Member(bench.host, 0, agent=agent, life=ranks.life)
    fleet = Fleet([member], Heard())
    known = workers.Workers()
    for pid in map(ranks.find, range(4)):
        bench.stage.note(pid)
    asked = {"pid": ranks.main.pid, "start_time": ranks.life["start_time"], "port": None}
    known.note(agent.call("life", asked).value["processes"], 0.0)
    with watch.Watch(fleet, bench.server(1), {member.name: known}):
        assert not fleet.stop.wait(0.5)  # longer than the patience: nobody has died yet
        for pid in [ranks.find(rank) for rank in killed] or [ranks.main.pid]:
            os.kill(pid, signal.SIGKILL)
        assert fleet.stop.wait(30)
    with pytest.raises(Cancelled) as cancelled:
        fleet.stop.check()
    error = cancelled.value.error
    assert error is not None
    assert (error.host, error.code, error.message, error.notes) == (
        "gpu01",
        "died",
        message,
        notes,
    )
    assert (cancelled.value.reason, cancelled.value.interrupted) == (message, False)
    assert sorted(error.tail) == [
        f"[2025-08-02 06:07:08 TP{rank}] Memory pool end." for rank in range(4)
    ]


def test_another_host_s_rank(agent, bench: Bench, port: int):
    """The ranks of the other nodes are watched alike."""
    ranks = Ranks(bench)
    pid = ranks.find(1)
    os.kill(ranks.find(3), signal.SIGSTOP)  # stopped is not ended
    turns = iter([False, False])

    def cancelled() -> bool:
        if next(turns, True):
            os.kill(pid, signal.SIGKILL)
        return False

    with pytest.raises(HostError) as error:
        wait_ready(agent, bench.server(port), ranks.life, 1, cancelled=cancelled)
    assert ": sglang::scheduler_TP1 is gone without a word" in error.value.message


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup with room for little more than an interpreter."""
    parent = Path("/sys/fs/cgroup/memory")
    if os.geteuid() != 0 or not (parent / "memory.limit_in_bytes").exists():
        pytest.skip("no memory cgroups of version 1: nothing is killed for want of memory here")
    if not procfs.sees_machine():
        pytest.skip("in a container the kernel's log tells of processes by other numbers")
    made = parent / f"sgldbg-test-{os.getpid()}"
    made.mkdir()
    (made / "memory.limit_in_bytes").write_text(str(24 << 20))
    yield made
    wait_for(lambda: not (made / "cgroup.procs").read_text(), "the end of the group's processes")
    made.rmdir()


@pytest.mark.parametrize("ends", ["stays", "follows"])
def test_a_rank_that_the_kernel_kills(agent, bench: Bench, port: int, group: Path, ends: str):
    """The kernel's line of it is shown, with what to do, also where the main process follows it."""
    ranks = Ranks(bench, str(group), ends)
    pid = ranks.find(2)
    error = wait(agent, bench, port, ranks, (bench.folder / "hog").touch)
    said, *waiting = error.notes
    in_part = error.message.startswith("server `kimi` ended in part, ")
    assert in_part or error.message.endswith(" s after its start with exit status 1")
    assert in_part == (ends == "stays")
    assert said.startswith("the kernel says: Memory cgroup out of memory: Killed process ")
    assert f" {pid} (" in said
    assert (waiting, error.hints) == (
        [WAITING] if in_part else [],
        ("give it more memory, or a higher limit for its cgroup or container",),
    )


KMSG = """6,1,100000000,-;pt_main_thread invoked oom-killer: gfp_mask=0xcc0, order=0
 SUBSYSTEM=memory
3,2,100000001,-;Memory cgroup out of memory: Killed process 703 (sglang::schedul) anon-rss:6kB
3,3,100000002,-;Out of memory: Killed process 704 (python3) total-vm:9kB, anon-rss:6kB
3,4,100000003,-,caller=T1;Out of memory: Kill process 705 (python) score 900 or sacrifice child
6,5,100000004,-;oom_reaper: reaped process 704 (python3), now anon-rss:0kB
"""


def test_what_the_kernel_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Both forms of its line, of old kernels too; none of a process that had the number before."""
    monkeypatch.setattr(procfs, "sees_machine", lambda: True)  # wherever these tests run
    path = tmp_path / "kmsg"
    path.write_text(KMSG)
    ticks = os.sysconf("SC_CLK_TCK")
    asked = [{"pid": pid, "start_time": 90 * ticks} for pid in (702, 703, 704, 705)]
    lines = [line.partition(";")[2] for line in KMSG.splitlines()]
    assert find_killed(asked, str(path)) == {"703": lines[2], "704": lines[3], "705": lines[4]}
    assert find_killed([{"pid": 703, "start_time": 200 * ticks}], str(path)) == {}
    assert find_killed(asked, str(tmp_path / "none")) == {}
