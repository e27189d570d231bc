"""Whatever fails on the way, every host is put back, and the message says what and where."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from orchestrator.demo.processes import read_processes
from orchestrator.servers import workers
from orchestrator.session.hosts.member import Member
from orchestrator.session.steps import lives, stages
from tests.session.command import Hook, Result, call, once, told
from tests.session.world import Project, World, wait_for

BACK = "demo-[0-1]: files are as they were, server is as it was\n"
BACK_ONE = "demo-0: files are as they were, server is as it was\n"
LET_GO = (
    "demo-1: files are as they were, but for what somebody else changed, server is as it was\n"
    "demo-1: HOSTS/demo-1/site/sglang/srt/models/llama_eagle3.py: somebody else changed it before"
    " the swap\n"
)
STAGED = (
    "demo-0: files are as they were, server was not touched\n"
    "demo-1: nothing was written, server was not touched\n"
)
CHANGED = (
    "error: `HOSTS/demo-1/site/sglang/srt/models/llama_eagle3.py` is not what the plan saw\n"
    " --> host demo-1\n"
)
UNTOUCHED = "demo-[0-1]: nothing was written, server was not touched\n"
RUN = "run directory: TMP/runs/TIME-eagle3-zero-acceptance\n"


DIED = """\
error: server `miniature` ended N s after its start with exit status 2
 --> HOST
note: this was the debug life: patched, and as `restart` of the session file changes it
the last lines from the host:
  | usage: launch_server [-h] --model-path MODEL_PATH [--host HOST] [--port PORT]
  |                      [--tensor-parallel-size TENSOR_PARALLEL_SIZE]
  |                      [--nnodes NNODES] [--node-rank NODE_RANK]
  |                      [--dist-init-addr DIST_INIT_ADDR]
  |                      [--speculative-algorithm {EAGLE,EAGLE3}]
  |                      [--speculative-draft-model-path SPECULATIVE_DRAFT_MODEL_PATH]
  |                      [--speculative-num-steps SPECULATIVE_NUM_STEPS]
  |                      [--disable-cuda-graph] [--skip-server-warmup]
  | launch_server: error: unrecognized arguments: --no-such-flag
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a project; its stderr comes with everything replaced that differs from run to run."""

    def run(project: Project, hook: Hook | None = None) -> Result:
        arguments = ("run", project.write(), "--runs", tmp_path / "runs")
        result = call(monkeypatch, *arguments, hook=hook)
        print(result.stages)
        print("ERR<<" + told(result.err, tmp_path) + ">>ERR")
        return Result(result.code, result.out, told(result.err, tmp_path), result.stages)

    return run


class Meddler:
    """Somebody else who writes into a file, and takes it back for the next test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._was = path.stat()
        self._size = self._was.st_size

    def write(self) -> None:
        """Add a line, in place."""
        with self.path.open("ab") as file:
            file.write(b"# somebody else\n")

    def take_back(self) -> None:
        """The same bytes and times, in the same inode."""
        os.truncate(self.path, self._size)
        os.utime(self.path, ns=(self._was.st_atime_ns, self._was.st_mtime_ns))


def test_a_patch_that_does_not_fit(world: World, project: Project, run: Any) -> None:
    """Exit code 4: nothing was written on any host."""
    project.patch = project.patch.replace("spec_info.hidden_states\n", "spec_info.no_such_states\n")
    result = run(project)
    world.assert_as_before()
    assert result.code == 4, result.err
    assert "no_such_states" in result.err
    assert result.err.endswith(UNTOUCHED + RUN)
    assert "begin" not in result.stages


def test_a_host_refuses_while_staging(world: World, project: Project, run: Any) -> None:
    """A file in the way of the probe runtime: exit code 5, no server was stopped anywhere."""
    foreign = world.target("demo-1").parents[2] / "_sgldbg.py"
    result = run(project, once(("demo-1", "check", "done"), lambda: foreign.write_text("# mine\n")))
    assert foreign.read_text() == "# mine\n"
    foreign.unlink()
    world.assert_as_before()
    assert (result.code, result.err) == (
        5,
        "error: `HOSTS/demo-1/site/sglang/_sgldbg.py` should be created but is there already\n"
        " --> host demo-1\n" + STAGED + RUN,
    )
    assert "stop" not in result.stages


def test_a_file_changed_since_the_plan(world: World, project: Project, run: Any) -> None:
    """Exit code 5: the file is left as somebody else wrote it."""
    meddler = Meddler(world.target("demo-1"))
    result = run(project, once(("demo-1", "check", "done"), meddler.write))
    assert meddler.path.read_bytes().endswith(b"# somebody else\n")
    meddler.take_back()
    world.assert_as_before()
    assert (result.code, result.err) == (
        5,
        CHANGED
        + "hint: somebody changed it after the plan was made: run this again to plan anew\n"
        + STAGED
        + RUN,
    )
    assert "stop" not in result.stages


def test_a_file_changed_before_the_swap(world: World, project: Project, run: Any) -> None:
    """One host refuses to swap: both start unpatched again, the foreign change stays."""
    meddler = Meddler(world.target("demo-1"))
    result = run(project, once(("demo-1", "stop", "done"), meddler.write))
    assert meddler.path.read_bytes().endswith(b"# somebody else\n")
    meddler.take_back()
    # The original has compiled the foreign version; nothing else differs.
    wait_for(
        lambda: all("demo-1:sglang/srt/models/__pycache__" in d for d in world.differences()),
        "everything as before",
    )
    assert (result.code, result.err) == (6, CHANGED + BACK_ONE + LET_GO + RUN)


def test_code_that_python_would_not_run(
    single: World, small: Project, run: Any, tmp_path: Path
) -> None:
    """A copy of the package that comes first on the path is noticed before the server starts."""
    shutil.copytree(single.cluster.hosts[0].site, tmp_path / "shadow")
    small.session["restart"]["env"] = {"PYTHONPATH": str(tmp_path / "shadow")}
    result = run(small)
    single.assert_as_before()
    assert (result.code, result.err) == (
        6,
        "error: the patched `sglang/srt/models/llama_eagle3.py` is not what Python would run:"
        " TMP/shadow/sglang/srt/models/llama_eagle3.py is imported without it\n"
        " --> host demo-0\n" + BACK_ONE + RUN,
    )
    assert "start running" not in result.stages


def test_a_server_that_dies_at_start(world: World, project: Project, run: Any) -> None:
    """Its last lines are in the message, at once."""
    project.session["restart"]["add_args"] = ["--no-such-flag"]
    result = run(project)
    world.assert_as_before()
    # Either part may be seen first, or both at once, and then also a tenth of a second apart.
    err = re.sub(" --> hosts? demo-.*", " --> HOST", result.err)
    err = err.replace(f"{DIED}\n{DIED}", DIED)
    both = "\nerror: `ready` failed on demo-[0-1]\n"
    assert (result.code, err.replace(both, "")) == (6, DIED + BACK + RUN)


def test_a_server_that_is_never_ready(single: World, small: Project, run: Any) -> None:
    """After `ready.timeout` it is given up; the original has the same time and needs less."""
    small.session["restart"]["add_args"] = ["--port", "1"]
    small.server["ready"]["timeout"] = "8s"
    result = run(small)
    single.assert_as_before()
    # Its own words stand between; how far they go depends on the machine.
    first, _, rest = result.err.partition("the last lines from the host:\n")
    own = [line for line in rest.splitlines(keepends=True) if line.startswith("  | ")]
    assert any("Load weight end" in line for line in own)
    assert not any("@sgldbg1" in line for line in own)
    assert (result.code, first + "".join(rest.splitlines(keepends=True)[len(own) :])) == (
        6,
        "error: server `miniature` was not ready after 8 s: nobody listens on its port yet\n"
        " --> host demo-0\n"
        "note: this was the debug life: patched, and as `restart` of the session file changes"
        " it\n"
        "hint: allow it more time: `ready: {timeout: ...}` of server `miniature`\n"
        + BACK_ONE
        + RUN,
    )


def test_a_request_that_fails(single: World, small: Project, run: Any) -> None:
    """A request without an answer in time ends the session."""
    small.session["exercise"][0]["timeout"] = "1ms"
    result = run(small)
    single.assert_as_before()
    assert (result.code, result.err) == (
        6,
        "error: POST /generate failed: POST http://127.0.0.1:PORT/generate: no answer within N s\n"
        " --> host demo-0\n" + BACK_ONE + RUN,
    )


def test_a_server_that_dies_of_a_request(single: World, small: Project, run: Any) -> None:
    """Its last lines are in the message; what was recorded before is judged."""
    small.session["exercise"][0]["times"] = 1000
    home = single.cluster.hosts[0].home

    def kill() -> None:
        workers = [p for p in read_processes([home]) if p.argv[0].startswith("sglang::scheduler")]
        os.kill(workers[0].pid, signal.SIGKILL)

    result = run(small, once(("demo-0", "exercise", "running"), kill))
    single.assert_as_before()
    assert (result.code, result.err.endswith(BACK_ONE + RUN)) == (6, True)
    first, place = result.err.splitlines()[:2]
    assert first.startswith("error: POST /generate failed: POST http://127.0.0.1:PORT/generate: ")
    assert first.endswith(": server `miniature` ended with signal 9 (SIGKILL)")
    assert place == " --> host demo-0"
    assert "  | Received sigquit from a child process. It usually means the child failed.\n" in (
        result.err
    )


def test_a_rank_that_dies_in_silence(
    single: World, small: Project, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request would wait for it for ever: it is named within seconds, with the last lines."""
    monkeypatch.setattr(workers, "PATIENCE_S", 1.0)
    small.session["exercise"][0]["times"] = 1000
    home = single.cluster.hosts[0].home

    def kill() -> None:
        every = read_processes([home])
        dying, other = [
            next(p for p in every if p.argv[0] == f"sglang::scheduler_TP{rank}") for rank in (1, 0)
        ]
        for pid in (dying.ppid, other.pid):  # those that wait do not hear of it
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
        os.kill(dying.pid, signal.SIGKILL)

    def wake() -> None:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)

    stopped: list[int] = []
    began = once(("demo-0", "exercise", "running"), kill)
    ended = once(("demo-0", "stop", "running"), wake)

    def hook(*said: str) -> None:
        began(*said)
        if stopped:
            ended(*said)

    result = run(small, hook)
    single.assert_as_before()
    first, _, rest = result.err.partition("the last lines from the host:\n")
    assert (result.code, first) == (
        6,
        "error: server `miniature` ended in part: sglang::scheduler_TP1 is gone without a word, and"
        " the rest waits for it\n"
        " --> host demo-0\n"
        "note: still there, waiting: sglang::scheduler_TP0\n"
        "note: this was the debug life: patched, and as `restart` of the session file changes"
        " it\n",
    )
    assert " TP1] " in rest
    assert rest.endswith(BACK_ONE + RUN)


def test_too_few_records_in_time(single: World, small: Project, run: Any) -> None:
    """Exit code 1: the verdict on what there is, and who is missing."""
    never = "      when: hidden_states.shape[-1] == 1\n      once_per:"
    small.patch = small.patch.replace("      once_per:", never)
    small.session["until"] |= {"timeout": "1s"}
    result = run(small)
    single.assert_as_before()
    assert (result.code, result.err) == (1, BACK_ONE + RUN)
    assert "fused never reached" in result.out
    assert "without a record that counts: demo-0 TP0, TP1\n" in result.out


def test_no_record_in_time(single: World, small: Project, run: Any) -> None:
    """Silence is no answer: exit code 1, and what it means for each worker."""
    del small.session["exercise"]
    small.session["until"] |= {"timeout": "1s"}
    result = run(small)
    single.assert_as_before()
    assert (result.code, result.err) == (1, BACK_ONE + RUN)
    assert "fused never reached" in result.out
    assert "without a record that counts: demo-0 TP0, TP1\n" in result.out


def break_once(monkeypatch: pytest.MonkeyPatch, room: ModuleType, stage: str) -> None:
    """Have our own code fail in a stage of demo-1, the first time."""
    real = getattr(room, stage)
    failed: list[str] = []

    def broken(member: Member) -> str:
        if member.name == "demo-1" and not failed:
            failed.append(member.name)
            raise RuntimeError("no such luck")
        return str(real(member))

    monkeypatch.setattr(room, stage, broken)


BUG = "error: a bug of sgldbg: RuntimeError: no such luck; please report it with TRACE\n"


def test_a_bug_of_ours(
    world: World, project: Project, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unforeseen failure on one host: every host is put back, a trace is kept, exit code 70."""
    break_once(monkeypatch, stages, "swap")
    result = run(project)
    world.assert_as_before()
    assert (result.code, result.err) == (70, BACK + RUN + BUG)


def test_a_bug_of_ours_at_the_end(
    world: World, project: Project, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the controller could not do its host does by itself; `revert --all` then ends it."""
    project.session["lease"] = "5s"
    break_once(monkeypatch, lives, "start_original")
    result = run(project)
    assert result.code == 7
    err = re.sub(r"(?<=by hand on demo-1: )`.*`", "COMMAND", result.err)
    head, _, rest = err.partition("error: not every host is as it was\n")
    assert head.startswith("error: a bug of sgldbg in `restore`: RuntimeError: no such luck\n")
    assert rest.startswith(
        "hosts:\n"
        "  demo-0: files are as they were, server is not back\n"
        "  demo-1: files are as they were, server is stopped\n"
        "left to do:\n"
        "  demo-0: "
    )
    by_hand = "demo-0: by hand on demo-1: COMMAND\n"
    assert rest.endswith(
        "demo-0: started again, but not ready without demo-1\n" + by_hand + RUN + BUG
    )
    wait_for(lambda: all(world.cluster.server_facts().values()), "the guard of demo-1")
    inventory = project.folder / "inventory.yaml"
    ended = call(monkeypatch, "revert", "--all", "--inventory", inventory)
    assert ended.code == 0, ended.err
    wait_for(world.is_whole, "the server")
