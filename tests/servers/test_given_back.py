"""A whole session on a server that somebody started by hand: everything about it comes back."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.demo import launch, layout
from orchestrator.onhost.agent.proc import procfs
from orchestrator.onhost.agent.proc.describe import describe
from orchestrator.onhost.agent.proc.mempolicy import set_policy
from tests.onhost.process.conftest import Stage, wait_for

AS_ROOT = os.geteuid() == 0
NOBODY = 65534
# Everybody may run it; the interpreter of the tests may lie in somebody's home.
PYTHON = "/usr/bin/python3" if AS_ROOT else sys.executable
# A process's own, and what a new life of it must have anew.
OWN = ("pid", "start_time", "tree", "wrapper")
PROMPT = json.dumps({"text": "The capital of France is", "sampling_params": {"temperature": 0}})


class Place:
    """An install, a server of it on this machine, and the files of a session."""

    def __init__(self, folder: Path, stage: Stage) -> None:
        self.folder = folder
        self.stage = stage
        self.site = folder / "site"
        self.site.mkdir()
        layout.install_miniature(self.site)
        decade = launch.find_free_decade(1)
        self.port = decade * 10
        self.argv = launch.fill(launch.server_command(decade, 1, "EAGLE3", PYTHON), 0)
        self.restart: dict[str, Any] = {"add_args": ["--disable-cuda-graph"]}
        self.env = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(self.site),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ODD": os.fsdecode(b"\xfe = \n"),
            "HF_TOKEN": "hush-hush",
        }

    @property
    def logs(self) -> list[Path]:
        """Where both lives of the server write to."""
        return [self.folder / "server.out", self.folder / "server.err"]

    def start(self, prepare: Callable[[], None]) -> int:
        """Start the server as a person does, and wait until it answers."""
        with open(self.logs[0], "ab") as out, open(self.logs[1], "ab") as err:
            child = subprocess.Popen(
                self.argv,
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                preexec_fn=prepare,
                start_new_session=True,
            )
        self.stage.adopt(child)
        wait_for(self.is_ready, "the server")
        self.stage.note(child.pid)
        return child.pid

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            return launch.request(self.port, "GET", "/health")[0] == 200
        except OSError:
            return False

    def generate(self) -> Any:
        """The tokens for a fixed prompt."""
        status, data = launch.request(self.port, "POST", "/generate", PROMPT)
        assert status == 200
        return json.loads(data)["output_ids"]

    def run(self, launch_by: Any, command: str = "run") -> subprocess.CompletedProcess[str]:
        """`sgldbg` with an inventory that holds this way of launching."""
        project = self.folder / "project"
        (project / "sessions").mkdir(parents=True, exist_ok=True)
        server = {
            "install": "env",
            "hosts": ["here"],
            "launch": launch_by,
            "url": f"http://127.0.0.1:{self.port}",
            "ready": {"timeout": "30s"},
        }
        inventory = {
            "hosts": {"here": {"transport": "local"}},
            "installs": {"env": {"package": "sglang"}},
            "servers": {layout.SERVER: server},
        }
        (project / "inventory.yaml").write_text(json.dumps(inventory))
        session = project / "sessions" / "session.yaml"
        text = layout.session_text().replace("times: 3", "times: 1")
        text = re.sub(r"^restart: .*$", f"restart: {json.dumps(self.restart)}", text, flags=re.M)
        session.write_text(text + "\n")
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        temporary.chmod(0o1777)
        env = {
            **os.environ,
            "HOME": str(self.folder / "home"),
            "SGLDBG_STATE": str(self.folder / "state"),
            "TMPDIR": str(temporary),
        }
        words = [sys.executable, "-m", "orchestrator", command, str(session)]
        if command == "run":
            words += ["--runs", str(self.folder / "runs")]
        return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)

    def find_main(self) -> int:
        """The process that has the server's port now."""
        inodes = [item.inode for item in procfs.list_listeners() if item.port == self.port]
        found = procfs.find_owner(inodes, procfs.list_pids())
        assert found is not None
        self.stage.note(found)
        return found

    def read_files(self) -> dict[str, Any]:
        """Every file of the install: bytes, inode, mode, owner, times, links."""
        return {
            str(path): (path.read_bytes(), s.st_ino, s.st_mode, s.st_uid, s.st_mtime_ns, s.st_nlink)
            for path in sorted(self.site.rglob("*"))
            if path.is_file()
            for s in [path.stat()]
        }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    stage = Stage(tmp_path)
    with tempfile.TemporaryDirectory(prefix="sgldbg-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        try:
            yield Place(folder, stage)
        finally:
            stage.close()


def make_odd(folder: Path, group: Path | None) -> Callable[[], None]:
    """Everything that DESIGN lists set to something that no fresh process has."""

    def prepare() -> None:
        os.umask(0o027)
        os.nice(3)
        os.sched_setaffinity(0, {0})
        set_policy("bind:0")
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        Path("/proc/self/oom_score_adj").write_text("77")
        if AS_ROOT:
            if group is not None:
                (group / "cgroup.procs").write_text("0")
            os.setgroups([7, 5])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)

    return prepare


@pytest.fixture
def group() -> Iterator[Path | None]:
    """A cgroup of its own, where cgroups can be made."""
    parents = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
    parent = next((p for p in parents if (p / "cgroup.procs").exists()), None)
    if not AS_ROOT or parent is None:
        yield None
        return
    made = parent / f"sgldbg-test-given-back-{os.getpid()}"
    made.mkdir()
    yield made
    wait_for(lambda: not (made / "cgroup.procs").read_text(), "the end of the group's processes")
    made.rmdir()


def test_everything_about_a_server_comes_back(group, place: Place):
    """`sgldbg run` on an adopted server: DESIGN 5's list, files, tokens and logs are equal."""
    pid = place.start(make_odd(place.folder, group))
    before, files, tokens = describe(pid), place.read_files(), place.generate()
    nice = os.nice(0) + 3
    assert (before["umask"], before["nice"], before["oom_score_adj"]) == (0o027, nice, 77)
    assert (before["argv"], before["environ"], before["cwd"]) == (
        list(place.argv),
        place.env,
        str(place.folder),
    )
    limits = before["rlimits"]
    assert (limits["RLIMIT_NOFILE"], limits["RLIMIT_CORE"]) == ([300, 400], [0, 0])
    assert group is None or any(line.endswith(f"/{group.name}") for line in before["cgroups"])
    assert (before["numa"], before["affinity"], before["ignored"]) == ("bind:0", [0], [1])
    assert not AS_ROOT or (before["uid"], before["groups"]) == (NOBODY, [5, 7])
    old_logs = [path.read_bytes() for path in place.logs]
    done = place.run("adopt")
    assert (done.returncode, done.stdout) == (0, done.stdout), done.stderr
    again = place.find_main()
    assert again != pid
    after = describe(again)
    keys = sorted({*before, *after} - {*OWN})
    assert {k: after.get(k) for k in keys} == {k: before.get(k) for k in keys}
    assert place.read_files() == files
    assert place.generate() == tokens
    assert "here: files are as they were, server is as it was\n" in done.stderr
    for old, path in zip(old_logs, place.logs, strict=True):
        assert path.read_bytes().startswith(old)
        assert b"SGLDBG_SESSION" not in path.read_bytes()
    assert "hush-hush" not in done.stdout + done.stderr
    for path in (place.folder / "runs").rglob("*"):
        assert not path.is_file() or b"hush-hush" not in path.read_bytes()
    assert list((place.folder / "state" / "sessions").iterdir()) == []
    assert list((place.folder / "tmp").iterdir()) == []


CONTROL = """#!/bin/sh
cd {folder}
case $1 in
start)
    shift
    unset PWD OLDPWD
    PYTHONPATH={site} PYTHONDONTWRITEBYTECODE=1 exec setsid {argv} "$@" >>server.out 2>>server.err
    ;;
stop)
    kill "$(pgrep -f -- '--port {port} ')"
    ;;
esac
"""


def test_a_session_through_two_commands(place: Place):
    """`stop:` and `start:` of the user's take a whole session; the verdict comes out the same."""
    control = place.folder / "ctl"
    words = {"folder": place.folder, "site": place.site, "port": place.port}
    control.write_text(CONTROL.format(argv=" ".join(place.argv), **words))
    control.chmod(0o755)
    pid = place.start(lambda: None)
    files, tokens = place.read_files(), place.generate()
    pair = {"stop": [str(control), "stop"], "start": [str(control), "start", "{args}"]}
    done = place.run(pair)
    assert done.returncode == 0, done.stderr
    # What such a command hands on is its own affair; that the server lacks it now is told.
    lines = done.stderr[done.stderr.index("here: files") :].splitlines()
    assert lines[0] == "here: files are as they were, server runs again, but differs"
    (environ,) = [line for line in lines if line.startswith("here: environ: ")]
    assert {"HF_TOKEN is missing", "ODD is missing"} < set(environ[15:].split(", "))
    again = place.find_main()
    assert again != pid
    assert "--disable-cuda-graph" not in procfs.parse_strings(procfs.read_cmdline(again))
    assert place.read_files() == files
    assert place.generate() == tokens


def test_a_server_that_nobody_can_stop(place: Place):
    """The session ends with the files as they were, and says that the server runs on."""
    control = place.folder / "ctl"
    control.write_text("#!/bin/sh\necho draining\necho you may not stop it >&2\nexit 3\n")
    control.chmod(0o755)
    pid = place.start(lambda: None)
    files = place.read_files()
    done = place.run({"stop": [str(control), "stop"], "start": [str(control), "{args}"]})
    assert place.read_files() == files
    assert place.find_main() == pid
    said = re.sub(r"\bprocess \d+", "process N", done.stderr.partition("error: ")[2])
    python, still = os.path.basename(PYTHON), "is still there; process N"
    assert (done.returncode, said.partition("run directory: ")[0]) == (
        6,
        f"the server could not be stopped: `{control} stop` ended with exit status 3: you may not"
        f" stop it; process N ({python} -m sglang.launch_server) {still} ({python} -c) {still}"
        f" (sglang::scheduler_TP0) {still} (sglang::scheduler_TP1) is still there; port"
        f" {place.port} is still held by process N ({python} -m sglang.launch_server) of"
        f" {procfs.user_name(os.getuid())}\n"
        " --> host here\n"
        "here: files are as they were, server is as it was\n"
        "here: its server could not be stopped and runs on\n",
    )


def test_what_a_plan_tells_of_the_server(place: Place):
    """An argument that is not there, one that is replaced, a script that waits, another copy."""
    hidden = place.folder / "checkout" / "sglang"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").touch()
    place.env["PYTHONPATH"] += f":{hidden.parent}"
    script = place.folder / "run.sh"
    script.write_text(f"#!/bin/sh\n{shlex.join(place.argv)}\necho over\n")
    place.argv = ("sh", str(script))
    shell = place.start(lambda: None)
    added = ["--tp", "1", "--disable-cuda-graph"]  # else the plan has a word on graphs, too
    place.restart = {"remove_args": ["--no-such-flag"], "add_args": added}
    done = place.run("adopt", "plan")
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert notes == [
        f"note: here: `sh {script} (pid {shell})` waits for the server and is not started again"
        " with it",
        f"note: here: the server imports `sglang` from {place.site}/sglang, which hides {hidden}",
        "note: here: `--no-such-flag` is not among its arguments: nothing to remove",
        "note: here: `--tp 2` is replaced by `--tp 1`",
    ]


def test_arguments_need_a_place_in_a_start_command(place: Place):
    """A session that adds arguments is refused before any host is asked where there is none."""
    done = place.run({"stop": ["true"], "start": ["true"]}, "plan")
    assert done.returncode == 3
    assert "`{args}`" in done.stderr
