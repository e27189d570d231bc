"""Starting a described process again: everything put back, or a reason why not."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import sys
from pathlib import Path

import pytest

from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.proc.describe import describe, public
from orchestrator.onhost.agent.proc.mempolicy import set_policy
from orchestrator.onhost.agent.proc.priority import name_disk
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.server import process

from .conftest import Stage, wait_for

NOBODY = 65534
AS_ROOT = os.geteuid() == 0


def start(stage: Stage, description, *args, **options):
    """`process.start`, ended with the test; the description goes through JSON as it does in use."""
    key = process.start(json.loads(json.dumps(description)), *args, **options)
    stage.note(key["pid"])
    return key


def end(child, description) -> None:
    """End the original before its twin is started."""
    key = {"pid": child.pid, "start_time": description["start_time"]}
    process.stop(key, None, 10, None)
    child.wait(30)


def test_nothing_differs_after_a_restart(stage: Stage, open_dir):
    """Every attribute of DESIGN 5 set to something unusual comes back; root sets them all."""
    stage.folder = open_dir
    group = Path("/sys/fs/cgroup/pids") / f"sgldbg-test-{os.getpid()}"

    def prepare() -> None:
        os.umask(0o027)
        os.nice(3)
        os.sched_setaffinity(0, {0})
        set_policy("bind:0")
        resource.setrlimit(resource.RLIMIT_NOFILE, (123, 456))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        Path("/proc/self/oom_score_adj").write_text("77")
        if AS_ROOT:
            if group.parent.exists():
                (group / "cgroup.procs").write_text("0")
            os.setgroups([7, 5])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)

    if AS_ROOT and group.parent.exists():
        group.mkdir()
    # An interpreter that every user may run: the one of the tests lies in somebody's home.
    code = "import os,time; print('started', flush=True)\nopen(os.environ['READY'],'w')\n"
    argv = ["/usr/bin/python3", "-c", code + "time.sleep(60)", "", "\udcff two words"]
    with open(open_dir / "log", "ab") as log:
        child = stage.run(
            argv, cwd=open_dir, stdout=log, stderr=log, env={"ODD": "\udcfe"}, preexec_fn=prepare
        )
    before = describe(child.pid)
    nice = os.nice(0) + 3
    assert (before["numa"], before["nice"], before["ignored"]) == ("bind:0", nice, [1])
    assert before["rlimits"]["RLIMIT_NOFILE"] == [123, 456]
    end(child, before)
    again = start(stage, before, None, None)
    assert process.compare(before, again["pid"]) == []
    after = describe(again["pid"])
    assert after["start_time"] == again["start_time"] != before["start_time"]
    own = ("pid", "start_time", "tree")
    assert {k: after[k] for k in after if k not in own} == {
        k: before[k] for k in before if k not in own
    }
    wait_for(
        lambda: (open_dir / "log").read_text() == "started\nstarted\n", "both lives in the log"
    )
    process.stop(again, None, 5, None)
    if group.exists():
        group.rmdir()


def test_it_is_detached(stage: Stage):
    """It leads a process session of its own and has an empty stdin."""
    child = stage.spawn("")
    before = describe(child.pid)
    end(child, before)
    stat = procfs.read_stat(start(stage, before, None, None)["pid"])
    assert stat is not None
    assert stat.sid == stat.pid
    assert os.readlink(f"/proc/{stat.pid}/fd/0") == "/dev/null"


def test_no_descriptor_and_no_signal_is_inherited(stage: Stage, tmp_path):
    """What the agent has open or ignores is none of the server's business."""
    code = "import os,time; open(os.environ['READY'],'w').close(); time.sleep(60)"
    before = describe(stage.run([sys.executable, "-c", code]).pid)
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    again = start(stage, before, None, None, argv=["/bin/sleep", "60"])
    os.close(reading)
    os.close(writing)
    assert sorted(os.listdir(f"/proc/{again['pid']}/fd")) == ["0", "1", "2"]
    ignored = int(procfs.read_status(again["pid"])["SigIgn"], 16)
    assert not ignored & 1 << signal.SIGPIPE - 1


def test_a_debug_life(stage: Stage, tmp_path):
    """Arguments, variables, directory and output are those of the session, the rest stays."""
    code = "import os,time; print(os.environ['B'], flush=True); time.sleep(60)"
    child = stage.spawn("", env={"A": "1", "B": "2"}, preexec_fn=lambda: os.umask(0o077))
    before = describe(child.pid)
    out, err = str(tmp_path / "debug.stdout"), str(tmp_path / "debug.stderr")
    Path(out).write_text("kept\n")
    again = start(
        stage,
        before,
        out,
        err,
        argv=[sys.executable, "-c", code],
        env_set={"B": "three"},
        env_unset=["A"],
        cwd=str(tmp_path),
        session="s1",
    )
    wait_for(lambda: Path(out).read_text() == "kept\nthree\n", "the first line")
    assert Path(err).stat().st_mode & 0o777 == 0o600
    environ = describe(again["pid"])["environ"]
    assert environ["SGLDBG_SESSION"] == "s1"
    assert "A" not in environ
    assert process.compare(before, again["pid"]) == [
        f"argv: {sys.executable} -c {code}, was {' '.join(before['argv'])}",
        f"cwd: {tmp_path}, was {before['cwd']}",
        "environ: A is missing, B has another value, SGLDBG_SESSION is new",
        f"stdout: {out}, was /dev/null",
        f"stderr: {err}, was /dev/null",
    ]


# Becomes the server with entries that `os.execve` would not hand on.
ODD = """
import ctypes, os, sys
plain = [name + b"=" + value for name, value in os.environb.items()]
blocks = [
    [sys.executable.encode(), b"-c", sys.argv[1].encode()],
    [b"A=1", *plain, b"bare", b"A=2", b"=x", b"B=\\xff"],
]
arrays = [(ctypes.c_char_p * (len(texts) + 1))(*texts, None) for texts in blocks]
ctypes.CDLL(None).execve(blocks[0][0], *arrays)
"""


def test_an_environment_that_no_table_holds(stage: Stage):
    """Names that stand twice, and entries without one, come back in their order, byte for byte."""
    code = "import os,time; open(os.environ['READY'],'w').close(); time.sleep(60)"
    before = describe(stage.run([sys.executable, "-c", ODD, code]).pid)
    odd = ["A 2 times", "2 without a name"]
    assert (before["odd_environ"], before["environ"]["A"]) == (odd, "1")
    assert "entries" not in public(before)
    raw = Path(f"/proc/{before['pid']}/environ").read_bytes()
    os.kill(before["pid"], signal.SIGKILL)
    again = start(stage, before, None, None)["pid"]
    assert Path(f"/proc/{again}/environ").read_bytes() == raw
    assert process.compare(before, again) == []
    changed = start(stage, before, None, None, env_set={"A": "3"}, env_unset=["B"])["pid"]
    left = [e for e in raw.split(b"\0")[:-1] if not e.startswith((b"A=", b"B="))]
    assert Path(f"/proc/{changed}/environ").read_bytes().split(b"\0")[:-1] == [*left, b"A=3"]


def test_differences_are_named(stage: Stage):
    """What could not be put back is told with both values, and the end of the process as well."""
    child = stage.spawn("")
    found = describe(child.pid)
    limits = dict(found["rlimits"], RLIMIT_CORE=[-1, -1], RLIMIT_NOFILE=[1, 2])
    was = dict(found, umask=0o777, nice=-5, groups=[1, 2], affinity=[7], rlimits=limits)
    was.update(scheduler=[1, 10], disk=2 << 13 | 6, odd_environ=["A 2 times"], personality=8)
    now_files = "/".join(str(n) for n in found["rlimits"]["RLIMIT_NOFILE"])
    now_core = "/".join("unlimited" if n < 0 else str(n) for n in found["rlimits"]["RLIMIT_CORE"])
    groups = ",".join(str(group) for group in found["groups"]) or "none"
    cpus = ",".join(str(cpu) for cpu in found["affinity"])
    expected = [
        f"groups: {groups}, was 1,2",
        f"umask: {found['umask']:03o}, was 777",
        f"affinity: {cpus}, was 7",
        f"nice: {found['nice']}, was -5",
        "scheduler: other, was fifo 10",
        f"disk: {name_disk(found['disk'])}, was best-effort 6",
        "odd_environ: none, was A 2 times",
        f"personality: {found['personality']:#x}, was 0x8",
        f"RLIMIT_CORE: {now_core}, was unlimited/unlimited",
        f"RLIMIT_NOFILE: {now_files}, was 1/2",
    ]
    if found["rlimits"]["RLIMIT_CORE"] == [-1, -1]:
        expected.remove(f"RLIMIT_CORE: {now_core}, was unlimited/unlimited")
    assert process.compare(was, child.pid) == expected
    # A shell and Slurm give each life what only that one has.
    own = {"SHLVL": "2", "SLURM_JOB_ID": "17", "SLURM_TASK_PID": "9"}
    by_command = dict(found, way={"kind": "pair"}, environ={**found["environ"], **own})
    assert process.compare(by_command, child.pid) == []
    end(child, found)
    assert process.compare(found, child.pid) == ["the process has ended"]


def test_a_server_that_never_ran(stage: Stage, tmp_path):
    """With nothing but a command line it runs in the agent's surroundings."""
    made = {"argv": [sys.executable, "-c", "import time; time.sleep(60)"], "cwd": str(tmp_path)}
    again = start(stage, made, None, None, env_set={"X": "1"})
    found = describe(again["pid"])
    assert (found["cwd"], found["umask"]) == (str(tmp_path), _umask())
    assert found["environ"] == {**os.environ, "X": "1"}
    assert found["stdout"]["kind"] == "null"


def _umask() -> int:
    now = os.umask(0o022)
    os.umask(now)
    return now


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        ({}, {"argv": ["no-such-program"]}, "no program `no-such-program`"),
        ({"argv": []}, {}, "there is no command line"),
        ({"cwd": "{tmp}/gone"}, {}, "the directory `{tmp}/gone`: No such file or directory"),
        (
            {"python": "{tmp}/text"},
            {},
            "running `{tmp}/text`: Exec format error",
        ),
        (
            {},
            {"stdout": "{tmp}/gone/out"},
            "cannot open `{tmp}/gone/out`: No such file or directory",
        ),
    ],
)
def test_reasons_why_it_does_not_start(stage: Stage, tmp_path, change, options, reason):
    """A start that fails says at which step, and leaves no process behind."""
    (tmp_path / "text").write_text("no program\n")
    (tmp_path / "text").chmod(0o755)
    found = describe(stage.spawn("").pid)

    def fill(value):
        return value.replace("{tmp}", str(tmp_path)) if isinstance(value, str) else value

    changed = {**found, **{name: fill(value) for name, value in change.items()}}
    given = {name: fill(value) for name, value in options.items()}
    with pytest.raises(Refusal) as refused:
        process.start(changed, given.pop("stdout", None), None, **given)
    expected = "the server was not started: " + fill(reason)
    assert (refused.value.code, refused.value.message) == ("start-failed", expected)


@pytest.mark.skipif(not AS_ROOT, reason="only root has more rights than the server's user")
def test_an_output_that_only_we_may_open(stage: Stage, open_dir):
    """The file that the inventory names is opened with our rights; it was opened before, too."""
    stage.folder = open_dir
    (open_dir / "logs").mkdir(0o700)
    reading, writing = os.pipe()
    child = stage.run(
        ["/usr/bin/python3", "-c", "import os,time; open(os.environ['READY'],'w'); time.sleep(60)"],
        stdout=writing,
        cwd="/",
        preexec_fn=lambda: os.setresuid(NOBODY, NOBODY, NOBODY),
    )
    os.close(writing)
    os.close(reading)
    found = process.with_output(describe(child.pid), str(open_dir / "logs" / "out"))
    end(child, found)
    again = start(stage, found, None, None)
    assert process.compare(found, again["pid"]) == []
    assert describe(again["pid"])["stdout"]["path"] == str(open_dir / "logs" / "out")


@pytest.mark.skipif(not AS_ROOT, reason="only root has more rights than the server's user")
def test_a_log_that_became_a_link_is_opened_as_the_server(stage: Stage, open_dir):
    """Our own rights open the very file that the server had, never what its name leads to now."""
    stage.folder = open_dir
    secret = open_dir / "secret"
    secret.touch(0o600)
    with open(open_dir / "log", "ab") as log:
        os.fchown(log.fileno(), NOBODY, NOBODY)
        child = stage.run(
            [
                "/usr/bin/python3",
                "-c",
                "import os,time; open(os.environ['READY'],'w'); time.sleep(60)",
            ],
            stdout=log,
            cwd="/",
            preexec_fn=lambda: os.setresuid(NOBODY, NOBODY, NOBODY),
        )
    found = describe(child.pid)
    (open_dir / "log").unlink()
    (open_dir / "log").symlink_to(secret)
    with pytest.raises(Refusal) as refused:
        process.start(found, None, None)
    said = f"the server was not started: its output: `{open_dir}/log`: Permission denied"
    assert refused.value.message == said


@pytest.mark.parametrize(
    ("put", "kind"),
    [
        (os.mkfifo, "a pipe"),
        (lambda path: os.mknod(path, stat.S_IFSOCK | 0o600), "a socket"),
        (os.mkdir, "a directory"),
        (lambda path: os.symlink("/dev/full", path), "a device"),
    ],
    ids=["pipe", "socket", "directory", "device"],
)
def test_a_log_in_whose_place_something_else_lies(stage: Stage, tmp_path, put, kind):
    """What is no file any more is named, whoever opens it: a pipe without a reader hangs nobody."""
    path = tmp_path / "log"
    with open(path, "ab") as log:
        found = describe(stage.spawn("", stdout=log).pid)
    path.unlink()
    put(path)
    for given, place in ((None, f"its output: `{path}`"), (str(path), f"cannot open `{path}`")):
        with pytest.raises(Refusal) as refused:
            process.start(found, given, None)
        expected = f"the server was not started: {place}: it is {kind}, not a file"
        assert refused.value.message == expected


def test_a_log_that_lost_the_name_it_was_opened_by(stage: Stage, tmp_path):
    """A hard link keeps the file, but nobody can open it by its name: as good as deleted."""
    path = tmp_path / "log"
    with open(path, "ab") as log:
        child = stage.spawn("", stdout=log)
    os.link(path, tmp_path / "kept")
    path.unlink()
    found = describe(child.pid)
    assert (found["restorable"], found["why"]) == (
        False,
        "its stdout goes to a file that was deleted",
    )


def test_a_log_whose_name_ends_like_that_of_a_deleted_one(stage: Stage, tmp_path):
    """The kernel's mark at the end of a name is one only where there is no such file."""
    with open(tmp_path / "log (deleted)", "ab") as log:
        found = describe(stage.spawn("", stdout=log).pid)
    assert (found["restorable"], found["why"]) == (True, "")


def test_how_a_child_ended_is_known(tmp_path):
    """An agent that adopts orphans can tell a server's exit status; nobody else can."""
    from orchestrator.onhost.agent.proc.launch import read_exit

    for code, expected in (("raise SystemExit(3)", "exit status 3"), ("os.kill(0, 9)", None)):
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.execv(sys.executable, [sys.executable, "-c", "import os; " + code])
        wait_for(lambda pid=pid: read_exit(pid), "the end")
        assert read_exit(pid) == (expected or "signal 9 (SIGKILL)")
        os.waitpid(pid, 0)
        assert read_exit(pid) is None


def test_what_we_start_is_our_child(stage: Stage, tmp_path):
    """How a started process ends is known to its starter; orphans of others are not taken in."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            made = {"argv": [sys.executable, "-c", "raise SystemExit(5)"]}
            key = process.start(made, None, None)
            os.waitid(os.P_PID, key["pid"], os.WEXITED | os.WNOWAIT)
            from orchestrator.onhost.agent.proc.launch import read_exit

            os.write(writing, str(read_exit(key["pid"])).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "exit status 5"
    os.waitpid(pid, 0)
