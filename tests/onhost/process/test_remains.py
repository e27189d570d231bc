"""What a server leaves outside of its processes is cleared, waited for, or named; nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.onhost.agent.held.state import Context
from orchestrator.onhost.agent.look import gpu
from orchestrator.onhost.agent.ops_host import OPS
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.proc.describe import describe
from orchestrator.onhost.agent.server import process, remains, shm, twin

from .conftest import Stage, key_of, wait_for

SHARE = """
import mmap
for path in sys.argv[1:]:
    with open(path, 'w+b') as file:
        file.write(bytes(4096))
    with open(path, 'r+b') as file:
        globals()[path] = mmap.mmap(file.fileno(), 4096)
"""
# Workers that lose their launcher, take no SIGTERM and hide both argv and environment.
ORPHANS = """
code = '''
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(os.environ["READY"] + "." + str(os.getpid()), "w").close()
time.sleep(60)
'''
children = [subprocess.Popen([sys.executable, '-c', code]) for _ in range(2)]
while not all(os.path.exists(os.environ['READY'] + '.' + str(c.pid)) for c in children):
    time.sleep(0.01)
"""


@pytest.fixture
def segments():
    """Names of shared memory that no other test has."""
    heads = ("sgl_shm_mq_", "x_", "sgl_")
    made = [f"/dev/shm/{head}{os.getpid()}_{time.monotonic_ns()}" for head in heads]
    yield made
    for path in made:
        if os.path.exists(path):
            os.unlink(path)


def stop(child, description=None, **options):
    key = key_of(child.pid)
    value = process.stop(key, None, options.pop("timeout_s", 10), None, description)
    child.wait(30)
    return value


def test_shared_memory_of_the_server(stage: Stage, segments):
    """Segments under SGLang's own names go with it; those of other names are not ours to judge."""
    value = stop(stage.spawn(SHARE, *segments[:2]))
    assert value["shm"] == [os.path.basename(segments[0])]
    assert [os.path.exists(path) for path in segments[:2]] == [False, True]
    assert (value["left"], value["notes"]) == ([], [])


def test_shared_memory_that_others_use(stage: Stage, segments):
    """A segment that a foreign process has open stays, and that is said."""
    child = stage.spawn(SHARE, segments[0])
    other = stage.spawn("file = open(sys.argv[1])", segments[0])
    value = stop(child)
    name = os.path.basename(segments[0])
    assert (value["shm"], value["left"]) == ([], [])
    assert value["notes"] == [f"shared memory {name} is in use by another process"]
    assert os.path.exists(segments[0])
    assert other.poll() is None


def test_shared_memory_that_was_made_anew(stage: Stage, segments):
    """Another file under the same name is another server's."""
    child = stage.spawn(SHARE, segments[0])
    found = remains.find_segments([child.pid])
    os.unlink(segments[0])
    Path(segments[0]).touch()
    assert remains.remove_segments(found) == ([], [])
    assert os.path.exists(segments[0])


def test_shared_memory_of_a_life_that_died_before_its_stop(
    stage: Stage, monkeypatch, tmp_path: Path
):
    """What it was seen to use goes, and what SGLang named by its numbers; others' stays."""
    monkeypatch.setattr(procfs, "sees_machine", lambda: True)  # wherever these tests run
    number = time.monotonic_ns()
    other = stage.spawn("")
    other.kill()
    other.wait(30)
    kinds = ("old", "seen", "named", "foreign", "foreign_used", "left", "gone")
    paths = {kind: f"/dev/shm/sgl_{kind}_{number}" for kind in kinds}
    paths["theirs"] = f"/dev/shm/sgl_shm_mq_{other.pid}_{number}"
    paths["living"] = f"/dev/shm/sgl_shm_mq_{os.getpid()}_{number}"
    session: Any = SimpleNamespace(path=lambda name: str(tmp_path / name))
    try:
        Path(paths["old"]).touch()
        shm.begin(session, os.getuid())
        use = [paths[kind] for kind in ("old", "seen", "living", "gone")]
        child = stage.spawn(SHARE, *use, start_new_session=True)
        paths["named"] = f"/dev/shm/sgl_shm_mq_{child.pid}_{number}"
        for kind in ("named", "foreign", "theirs", "left"):
            Path(paths[kind]).touch()
        user = stage.spawn(SHARE, paths["foreign_used"])
        main = key_of(child.pid)
        shm.note(session, child.pid, procfs.read_all())
        child.kill()
        child.wait(30)
        os.unlink(paths["gone"])
        life = shm.read(session)
        assert life is not None
        assert {one.path for one in life.seen} == {paths[k] for k in ("seen", "living", "gone")}
        assert life.pids == {child.pid}
        value = process.stop(main, f"s-{number}", 5, None, None, life=life)
        assert value["shm"] == sorted(os.path.basename(paths[k]) for k in ("seen", "named"))
        assert (value["left"], value["notes"]) == ([], [])
        there = {kind for kind, path in paths.items() if os.path.exists(path)}
        assert there == {"old", "foreign", "foreign_used", "left", "theirs", "living"}
        assert user.poll() is None
    finally:
        for path in paths.values():
            Path(path).unlink(missing_ok=True)


def test_a_look_at_a_life_notes_what_is_new(stage: Stage, tmp_path: Path):
    """What it is not seen to use is asked for three times; without a file nothing is noted."""
    path = f"/dev/shm/sgl_{time.monotonic_ns()}"
    session: Any = SimpleNamespace(path=lambda name: str(tmp_path / name))
    child = stage.spawn("", start_new_session=True)
    shm.note(session, child.pid, procfs.read_all())  # before there is anything to compare with
    assert shm.read(session) is None
    shm.begin(session, os.getuid())
    file = tmp_path / shm.SHM
    try:
        Path(path).touch()

        def look() -> int | None:
            shm.note(session, child.pid, procfs.read_all())
            return json.loads(file.read_text()).get("looks", {}).get(path)

        assert [look() for _ in range(5)] == [1, 2, 3, 3, 3]
    finally:
        os.unlink(path)
    life = shm.read(session)
    assert life is not None
    assert (life.pids, life.seen) == ({child.pid}, frozenset())
    file.write_text("no JSON")
    shm.note(session, child.pid, procfs.read_all())
    assert file.read_text() == "no JSON"


def test_shared_memory_that_somebody_takes_away_meanwhile(segments, monkeypatch):
    """What is gone when it is to be removed is no error."""
    Path(segments[0]).touch()
    stat = os.lstat(segments[0])
    monkeypatch.setattr(remains, "list_used", lambda: os.unlink(segments[0]) or set())
    found = remains.Segment(segments[0], stat.st_dev, stat.st_ino)
    assert remains.remove_segments([found]) == ([], [])


# Processes with numbers of their own, and /dev/shm and the kernel's log of the machine.
CONTAINER = ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), "--pid", "--fork"]
INSIDE = """
import json, os, sys
from orchestrator.onhost.agent.look import gpu
from orchestrator.onhost.agent.look.kernel import find_killed
from orchestrator.onhost.agent.server import remains
path, pid, log = sys.argv[1:]
new = remains.Segment(path, *[getattr(os.lstat(path), name) for name in ("st_dev", "st_ino")])
remains.list_segments = lambda uid: {new}
def find(before, seen, ours):
    life = remains.Life(frozenset(before), frozenset(seen), frozenset([int(pid)]))
    return [sorted(found) for found in remains.find_abandoned(life, ours, 0)]
print(json.dumps([
    find([], [], set()),
    find([new], [], set()),
    find([], [], {new}),
    find([], [new], set()),
    find_killed([{"pid": 703, "start_time": 0}], log),
    [len(gpu.read_gpus()), gpu.read_holders()],
]))
"""


def test_a_container_s_numbers_are_not_the_machine_s(segments, holders: Path, tmp_path: Path):
    """Nothing of another's is taken for the life's own: shared memory, a death, a GPU's memory."""
    holders.write_text("703")
    path = f"/dev/shm/sgl_shm_mq_{2**22}_{time.monotonic_ns()}"  # no process has such a number
    segments.append(path)
    Path(path).touch()
    stat = os.lstat(path)
    log = tmp_path / "kmsg"
    log.write_text("3,2,100000001,-;Out of memory: Killed process 703 (python3)\n")
    command = [*CONTAINER, sys.executable, "-c", INSIDE, path, str(2**22), str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    name = os.path.basename(path)
    seen = [path, stat.st_dev, stat.st_ino]
    left = [f"shared memory {name} is left: it may be another container's"]
    assert json.loads(done.stdout) == [
        *([[], left], [[], []], [[], []], [[seen], []]),
        *({}, [2, None]),
    ]


def test_workers_whose_launcher_died_before_the_stop(stage: Stage):
    """They are known by what was written down when the server was described."""
    foreign = stage.spawn(ORPHANS)
    child = stage.spawn(ORPHANS)
    found = describe(child.pid)
    workers = [pid for pid, _ in found["tree"] if pid != child.pid]
    assert len(workers) == 2
    main = key_of(child.pid)
    os.kill(child.pid, 9)
    child.wait(30)
    value = process.stop(main, None, 60.0, None, found)
    assert value["seconds"] < 30, "who ended first was the one to be waited for"
    assert sorted(value["killed"]) == sorted(workers)
    assert value["left"] == []
    for pid in workers:
        stat = procfs.read_stat(pid)
        assert stat is None or not stat.alive
    assert foreign.poll() is None
    assert all(process.is_alive(*key) for key in describe(foreign.pid)["tree"])


# Workers that left their launcher before anybody looked; each holds a lock, for memory of a GPU.
LEAVERS = """
import fcntl
def work(rank):
    open('/proc/self/comm', 'w').write('sglang::schedul')
    gpu = open(sys.argv[1 + rank], 'w')
    fcntl.flock(gpu, fcntl.LOCK_EX)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(sys.argv[1 + rank] + '.up', 'w').close()
    time.sleep(60)
for rank in range(2):
    if os.fork() == 0:
        if os.fork() == 0:
            work(rank)
        os._exit(0)
    os.wait()
while not all(os.path.exists(path + '.up') for path in sys.argv[1:]):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("how", [{"start_new_session": True}, {"process_group": 0}])
def test_workers_that_left_their_launcher(stage: Stage, tmp_path: Path, how):
    """They are known by the group that the server leads; the same of a foreign server stays."""
    locks = [str(tmp_path / name) for name in ("gpu0", "gpu1", "other0", "other1")]
    child = stage.spawn(LEAVERS, *locks[:2], **how)
    foreign = stage.spawn(LEAVERS, *locks[2:], **how)
    found, others = describe(child.pid), describe(foreign.pid)
    for pid, _ in (*found["tree"], *others["tree"]):
        stage.note(pid)
    assert [len(found["tree"]), len(others["tree"])] == [3, 3]
    # Whoever watches the server's workers does not take them for gone.
    looked, _ = OPS["life"](Context(str(tmp_path)), key_of(child.pid), b"")
    assert [[p["pid"], p["start_time"]] for p in looked["processes"]] == found["tree"]
    value = stop(child, found)
    workers = [pid for pid, _ in found["tree"] if pid != child.pid]
    assert (value["stopped"], sorted(value["killed"])) == ([child.pid], sorted(workers))
    assert [_is_locked(path) for path in locks] == [False, False, True, True]
    assert all(process.is_alive(*key) for key in others["tree"])


def _is_locked(path: str) -> bool:
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


NVIDIA_SMI = """#!{python}
import os, sys
state = open({state!r}).read().split()
if "--query-gpu" in sys.argv[1]:
    print("0, GPU-aa, NVIDIA H100 80GB HBM3, 70000, 81559")
    print("1, GPU-bb, NVIDIA H100 80GB HBM3, [N/A], 81559")
else:
    for pid in state:
        print(pid + ", GPU-bb, 70000")
    print("1, GPU-aa, [N/A]")
"""


@pytest.fixture
def holders(tmp_path: Path, monkeypatch) -> Path:
    """A file with the pids that a stand-in for nvidia-smi names as holders of GPU 1."""
    monkeypatch.setattr(procfs, "sees_machine", lambda: True)  # wherever these tests run
    state, tools = tmp_path / "holders", tmp_path / "tools"
    state.touch()
    tools.mkdir()
    (tools / "nvidia-smi").write_text(NVIDIA_SMI.format(python=sys.executable, state=str(state)))
    (tools / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return state


def test_gpus_are_read(holders: Path):
    """Boards and holders, with what the driver does not tell left open."""
    holders.write_text("77")
    rows = gpu.read_gpus()
    assert rows is not None
    assert [(r["index"], r["used_mib"], r["total_mib"]) for r in rows] == [
        (0, 70000, 81559),
        (1, None, 81559),
    ]
    assert gpu.read_holders() == [(77, "GPU-bb", 70000), (1, "GPU-aa", None)]


def test_no_driver_no_word(monkeypatch, tmp_path):
    """Where there is no nvidia-smi nothing is waited for and nothing is claimed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (gpu.read_gpus(), gpu.read_holders()) == (None, None)
    assert remains.find_holders([1]) == []


def test_gpu_memory_is_waited_for(stage: Stage, holders: Path):
    """A stop is done when the driver has the memory back, not when the process is gone."""
    child = stage.spawn(
        "signal.signal(15, lambda *_: (open(sys.argv[1], 'w').close(), os._exit(0)))", str(holders)
    )
    holders.write_text(str(child.pid))
    assert stop(child)["left"] == []


def test_gpu_memory_that_stays(stage: Stage, holders: Path):
    """What is still held is named by board and process: the next start would run out of memory."""
    child = stage.spawn("")
    holders.write_text(str(child.pid))
    held = remains.find_holders([child.pid])
    child.kill()
    child.wait(30)
    assert remains.wait_for_gpus(held, 0.0) == [f"GPU 1 holds 70000 MiB for process {child.pid}"]


LOOP = """#!/bin/sh
while true; do
    {python} - "$@" </dev/null
    {python} -c '{code}'
done
"""


def test_what_watches_a_server_in_secret(stage: Stage, tmp_path):
    """A server that is there again right after its stop was started by somebody, who is named."""
    script = tmp_path / "run.sh"
    code = 'import os,time; open(os.environ["READY"],"w").close(); time.sleep(60)'
    script.write_text(LOOP.format(python=sys.executable, code=code))
    shell = stage.run(["sh", str(script)], cwd=tmp_path)

    def find_server() -> int | None:
        tree = procfs.find_tree(shell.pid, procfs.read_all())[1:]
        return next((s.pid for s in tree if procfs.read_cmdline(s.pid).endswith(b"(60)\0")), None)

    main = wait_for(find_server, "the server")
    found, since = describe(main), procfs.read_clock()
    process.stop(key_of(main), None, 10, None, found)
    again = wait_for(lambda: find_server() not in (None, main) and find_server(), "the next one")
    stage.note(again)
    who = f"sh {script} (pid {shell.pid})"
    expected = [f"process {again} was started in its place by {who}"]
    assert twin.find_successors(found, {main}, since) == expected
    assert found["supervisor"] == f"a loop of {who}"
