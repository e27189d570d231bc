"""The description of a process: complete for us, without secrets for everybody else."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys

import pytest

from orchestrator.onhost.agent.proc import procfs, supervisor
from orchestrator.onhost.agent.proc.describe import _PUBLIC, describe
from orchestrator.onhost.agent.proc.limits import read_limits
from orchestrator.onhost.agent.refusal import Refusal
from orchestrator.onhost.agent.server import process

from .conftest import HEAD, TAIL, Stage, key_of

# Overwrites the argument block as setproctitle does.
RENAME = """
fields = open('/proc/self/stat').read().rpartition(')')[2].split()
start, end = int(fields[45]), int(fields[46])
title = b'sglang::http_server/tokenizer_manager'
with open('/proc/self/mem', 'r+b', buffering=0) as memory:
    memory.seek(start)
    memory.write(title + bytes(end - start - len(title)))
"""


def test_every_limit_is_read():
    """All that Python has a name for, as getrlimit(2) gives it to the process itself."""
    names = {name for name in dir(resource) if name.startswith("RLIMIT_")} - {"RLIMIT_OFILE"}
    assert read_limits(os.getpid()) == {
        name: list(resource.getrlimit(getattr(resource, name))) for name in names
    }


def test_everything_is_described(stage: Stage, tmp_path):
    """argv and environ come byte for byte, with all that DESIGN 5 lists beside them."""

    def prepare() -> None:
        os.umask(0o027)
        os.nice(3)
        os.sched_setaffinity(0, {0})
        resource.setrlimit(resource.RLIMIT_NOFILE, (123, 456))
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("77")

    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    child = stage.spawn(
        "",
        "",
        os.fsdecode(b"\xff two words"),
        cwd=tmp_path,
        stdout=log,
        stderr=log,
        env={"ODD": os.fsdecode(b"\xfe=\n")},
        preexec_fn=prepare,
    )
    os.close(log)
    found = describe(child.pid)
    assert found["argv"][0] == sys.executable
    assert found["argv"][-2:] == ["", "\udcff two words"]
    assert found["environ"]["ODD"] == "\udcfe=\n"
    assert found["cwd"] == str(tmp_path)
    assert (found["umask"], found["nice"], found["oom_score_adj"]) == (
        0o027,
        os.nice(0) + 3,
        77,
    )
    assert found["affinity"] == [0]
    assert found["rlimits"]["RLIMIT_NOFILE"] == [123, 456]
    assert found["uid"] == os.getuid()
    assert found["python"] == sys.executable
    assert found["stdout"]["path"] == str(tmp_path / "log")
    assert found["stdout"]["append"] is True
    assert (found["restorable"], found["why"]) == (True, "")


def test_the_public_description_has_no_environment(stage: Stage):
    """Exactly the keys of the protocol's page, none of which can hold a secret variable."""
    child = stage.spawn("", env={"HF_TOKEN": "hush-hush"})
    shown = process.public(describe(child.pid))
    assert "hush-hush" not in repr(shown)
    assert list(shown) == list(_PUBLIC)
    assert shown["stdout"] == {"kind": "null", "path": "/dev/null"}


def test_another_start_time_is_another_process(stage: Stage):
    """A pid that was given away again is never taken for the process that had it."""
    key = key_of(stage.spawn("").pid)
    with pytest.raises(Refusal) as refused:
        describe(key["pid"], key["start_time"] + 1)
    assert (refused.value.code, str(refused.value)) == ("gone", f"process {key['pid']} is gone")
    assert not process.is_alive(key["pid"], key["start_time"] + 1)


def test_a_zombie_is_gone(stage: Stage):
    """A process that ended but was not waited for counts as gone, a stopped one does not."""
    child = stage.spawn("")
    key = key_of(child.pid)
    os.kill(child.pid, 19)
    assert process.is_alive(**key)
    os.kill(child.pid, 9)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.is_alive(**key)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("pipe", "its stdout goes to a pipe, which cannot be given back"),
        ("socket", "its stdout goes to a socket, which cannot be given back"),
        ("tty", "its stdout goes to a terminal, which cannot be given back"),
        ("deleted", "its stdout goes to a file that was deleted"),
    ],
)
def test_outputs_that_cannot_be_given_back(stage: Stage, tmp_path, kind, why):
    """They are named, and another file in their place is all that it takes."""
    ends = []
    if kind == "pipe":
        ends = list(os.pipe())
    elif kind == "socket":
        pair = socket.socketpair()
        ends = [pair[0].detach(), pair[1].detach()]
    elif kind == "tty":
        ends = list(os.openpty())
    else:
        ends = [os.open(tmp_path / "gone", os.O_WRONLY | os.O_CREAT)]
    child = stage.spawn("", stdout=ends[-1])
    if kind == "deleted":
        os.unlink(tmp_path / "gone")
    found = describe(child.pid)
    for fd in ends:
        os.close(fd)
    assert (found["restorable"], found["needs_output"], found["why"]) == (False, True, why)
    changed = process.with_output(found, str(tmp_path / "out"))
    assert (changed["restorable"], changed["why"]) == (True, "")
    assert process.public(changed)["stdout"] == {"kind": "file", "path": str(tmp_path / "out")}
    assert changed["stderr"] == found["stderr"]
    bad = process.with_output(found, str(tmp_path / "no" / "out"))
    assert (bad["restorable"], bad["why"]) == (
        False,
        f"its stdout cannot go to `{tmp_path}/no/out`: No such file or directory",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_else_s_process(stage: Stage):
    """A user may see a foreign server, and learns why it cannot be touched."""
    child = stage.spawn("")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            found = process.public(describe(child.pid))
            os.write(writing, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = json.loads(pipe.read())
    os.waitpid(pid, 0)
    assert found["argv"][0] == sys.executable
    assert (found["restorable"], found["needs_output"], found["why"]) == (
        False,
        False,
        "it belongs to root, whose processes we may not read",
    )


def test_closed_output_stays_closed(stage: Stage):
    """A server without stdout and stderr is as restorable as any other."""
    child = stage.spawn("", preexec_fn=lambda: (os.close(1), os.close(2)))
    found = describe(child.pid)
    assert found["stdout"] == found["stderr"] == {"kind": "closed"}
    assert found["restorable"] is True


def test_a_title_over_the_arguments(stage: Stage):
    """0.5.2 renames its main process: the title is shown without its padding, and refused."""
    found = describe(stage.spawn(RENAME).pid)
    assert found["argv"] == ["sglang::http_server/tokenizer_manager"]
    assert found["restorable"] is False
    assert found["needs_output"] is False
    assert found["why"] == "it has overwritten its own command line with a title"


def test_a_directory_that_is_gone(stage: Stage, tmp_path):
    """A working directory that was removed cannot be given back."""
    (tmp_path / "cwd").mkdir()
    child = stage.spawn("", cwd=tmp_path / "cwd")
    (tmp_path / "cwd").rmdir()
    expected = f"its working directory, `{tmp_path}/cwd (deleted)`, is not there any more"
    assert describe(child.pid)["why"] == expected


def test_python_of_a_first_word_that_is_no_file(stage: Stage):
    """`exec -a NAME python` is started by the file that it runs."""
    child = stage.run(
        ["some server", "-c", "import os,time; open(os.environ['READY'],'w'); time.sleep(60)"],
        executable=sys.executable,
    )
    assert describe(child.pid)["python"] == os.path.realpath(sys.executable)


def test_relative_python_is_resolved_with_its_own_path(stage: Stage, tmp_path):
    """The first word is looked up in the process's PATH and directory, links are kept."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python-x").symlink_to(sys.executable)
    code = "import os,time; open(os.environ['READY'],'w'); time.sleep(60)"
    child = stage.run(
        ["sh", "-c", 'exec python-x -c "$0"', code], cwd=tmp_path, env={"PATH": "bin:/usr/bin:/bin"}
    )
    assert describe(child.pid)["python"] == str(tmp_path / "bin" / "python-x")


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("0::/system.slice/sglang.service", "sglang.service"),
        ("1:name=systemd:/system.slice/kimi@0.service/worker", "kimi@0.service"),
        ("0::/user.slice/user-0.slice/user@0.service/app.slice/sglang.service", "sglang.service"),
        ("0::/user.slice/user-0.slice/user@0.service/tmux.slice/tmux-spawn-1.scope", None),
        ("0::/user.slice/user-0.slice/session-3.scope", None),
        ("0::/system.slice/ssh.service", None),
        ("0::/system.slice/cron.service", None),
        ("0::/", None),
    ],
)
def test_units_of_cgroups(line, unit):
    """A service is named; sessions, and services that only hold sessions, are not."""
    assert supervisor.find_unit([line]) == unit


@pytest.mark.parametrize(
    ("line", "container"),
    [
        (f"0::/system.slice/docker-{'ab' * 32}.scope", "container abababababab"),
        (f"5:devices:/docker/{'cd' * 32}", "container cdcdcdcdcdcd"),
        (f"0::/machine.slice/libpod-{'ef' * 32}.scope/container", "container efefefefefef"),
        (
            f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{'12' * 32}.scope",
            "container 121212121212",
        ),
        ("0::/user.slice/user-0.slice/session-3.scope", None),
    ],
)
def test_containers_of_cgroups(line, container):
    """The container that would end with its main process is named by its short id."""
    assert supervisor.find_container([line]) == container


def test_a_supervising_parent(stage: Stage, tmp_path):
    """A parent that starts its children again is named, whatever the cgroup says."""
    code = "import os,subprocess,sys\nprctl=__import__('ctypes').CDLL(None).prctl\n"
    code += "prctl(15, b'supervisord', 0, 0, 0)\n"
    code += "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]])\nchild.wait()\n"
    inner = "import os,time; open(os.environ['READY'],'w'); time.sleep(60)"
    parent = stage.run([sys.executable, "-c", code, inner])
    (child,) = _children(parent.pid)
    expected = f"supervisord (pid {parent.pid})"
    found = describe(child)
    assert found["supervisor"] == expected
    assert found["why"] == f"{expected} owns it"


def _children(pid: int) -> list[int]:
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE)
    return [int(text) for text in done.stdout.split()]


# As root, or as a user who is root in a user namespace of their own.
UNSHARE = ["unshare", *([] if os.geteuid() == 0 else ["-Ur"])]
OWN = [] if os.geteuid() == 0 else ["user"]
# Its way to the file that says that it is up stays the same below the other root.
CHROOT = """
os.makedirs(os.path.dirname(sys.argv[1] + sys.argv[1]))
os.symlink('/', sys.argv[1] + sys.argv[1])
os.chroot(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("options", "code", "kinds", "told"),
    [
        (["--net"], "", ["net"], "network namespace is"),
        (["--mount"], "", ["mnt"], "mount namespace is"),
        (["--pid", "--fork"], "", ["pid"], "process namespace is"),
        (["--ipc", "--uts"], "", ["ipc", "uts"], "IPC namespace and host name's namespace are"),
        ([], CHROOT, ["root"], "root directory is"),
    ],
)
def test_other_namespaces_cannot_be_given_back(stage: Stage, tmp_path, options, code, kinds, told):
    """A server of another place would come back in ours; who else starts it gives it its own."""
    words = [sys.executable, "-c", HEAD + code + TAIL, str(tmp_path)]
    child = stage.run([*UNSHARE, *options, "--", *words], cwd=tmp_path)
    main = procfs.find_tree(child.pid, procfs.read_all())[-1].pid
    found = describe(main)
    assert sorted(found["namespaces"]) == sorted([*kinds, *OWN])
    if not OWN:
        assert found["why"] == f"its {told} not the agent's, and could not be given back"
    assert found["restorable"] is False
    assert process.public(found)["namespaces"] == found["namespaces"]
    assert process.with_way(found, {"kind": "pair"})["restorable"] is True


@pytest.mark.parametrize(("mount", "kinds"), [("", []), ("mount -t tmpfs none /mnt;", ["mnt"])])
def test_a_mount_namespace_of_each_command(stage: Stage, tmp_path, mount, kinds):
    """As of `ip netns exec`: of two that show the same mounts one is as good as the other."""
    words = [sys.executable, "-c", HEAD + TAIL]
    child = stage.run([*UNSHARE, "--mount", "sh", "-c", mount + 'exec "$@"', "sh", *words])
    code = "import sys; from orchestrator.onhost.agent.proc.namespaces import find_foreign;"
    code += "print(find_foreign(int(sys.argv[1])))"
    look = [*UNSHARE, "--mount", sys.executable, "-c", code, str(child.pid)]
    done = subprocess.run(look, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (f"{[*kinds, *OWN]}\n", "")
    assert describe(child.pid)["namespaces"] == ["mnt", *OWN]
