"""Whatever fails on the way, every host is put back, and the message says what and where."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.demo.processes import read_processes
from orchestrator.session import stages
from orchestrator.session.member import Member
from tests.session.command import Hook, Result, call, once, told
from tests.session.world import TARGET, Project, World

BACK = "demo-[0-1]: files are as they were, server is as it was\n"
BACK_ONE = "demo-0: files are as they were, server is as it was\n"
UNTOUCHED = "demo-[0-1]: nothing was written, server was not touched\n"
RUN = "run directory: TMP/runs/TIME-eagle3-zero-acceptance\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a project; its stderr comes with everything replaced that differs from run to run."""

    def run(project: Project, hook: Hook | None = None) -> Result:
        arguments = ("run", project.write(), "--runs", tmp_path / "runs")
        result = call(monkeypatch, *arguments, hook=hook)
        print(result.stages)
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
        "error: `TMP/../_sgldbg.py`\n" + UNTOUCHED + RUN,
    )
    assert "stop" not in result.stages


def test_a_file_changed_since_the_plan(world: World, project: Project, run: Any) -> None:
    """Exit code 5: the file is left as somebody else wrote it."""
    meddler = Meddler(world.target("demo-1"))
    result = run(project, once(("demo-1", "check", "done"), meddler.write))
    assert meddler.path.read_bytes().endswith(b"# somebody else\n")
    meddler.take_back()
    world.assert_as_before()
    assert (result.code, result.err) == (5, "" + UNTOUCHED + RUN)
    assert "stop" not in result.stages


def test_a_file_changed_before_the_swap(world: World, project: Project, run: Any) -> None:
    """One host refuses to swap: both start unpatched again, the foreign change stays."""
    meddler = Meddler(world.target("demo-1"))
    result = run(project, once(("demo-1", "stop", "done"), meddler.write))
    assert meddler.path.read_bytes().endswith(b"# somebody else\n")
    meddler.take_back()
    world.assert_as_before()
    assert (result.code, result.err) == (6, "" + BACK + RUN)


def test_code_that_python_would_not_run(
    single: World, small: Project, run: Any, tmp_path: Path
) -> None:
    """A copy of the package that comes first on the path is noticed before the server starts."""
    shadow = tmp_path / "shadow" / TARGET
    shadow.parent.mkdir(parents=True)
    shadow.write_bytes(single.target("demo-0").read_bytes())
    for folder in list(shadow.parents)[: len(Path(TARGET).parts) - 1]:
        (folder / "__init__.py").touch()
    small.session["restart"]["env"] = {"PYTHONPATH": str(tmp_path / "shadow")}
    result = run(small)
    single.assert_as_before()
    assert (result.code, result.err) == (6, "" + BACK_ONE + RUN)
    assert "start done" not in result.stages


def test_a_server_that_dies_at_start(world: World, project: Project, run: Any) -> None:
    """Its last lines are in the message, at once."""
    project.session["restart"]["add_args"] = ["--no-such-flag"]
    result = run(project)
    world.assert_as_before()
    assert (result.code, result.err) == (6, "" + BACK + RUN)


def test_a_server_that_is_never_ready(single: World, small: Project, run: Any) -> None:
    """After `ready.timeout` it is given up; the original has the same time and needs less."""
    small.session["restart"]["add_args"] = ["--port", "1"]
    small.server["ready"]["timeout"] = "8s"
    result = run(small)
    single.assert_as_before()
    assert (result.code, result.err) == (6, "" + BACK_ONE + RUN)


def test_a_request_that_fails(single: World, small: Project, run: Any) -> None:
    """A request without an answer in time ends the session."""
    small.session["exercise"][0]["timeout"] = "1ms"
    result = run(small)
    single.assert_as_before()
    assert (result.code, result.err) == (6, "" + BACK_ONE + RUN)


def test_a_server_that_dies_of_a_request(single: World, small: Project, run: Any) -> None:
    """Its last lines are in the message; what was recorded before is judged."""
    small.session["exercise"][0]["times"] = 1000
    home = single.cluster.hosts[0].home

    def kill() -> None:
        workers = [p for p in read_processes([home]) if p.argv[0].startswith("sglang::scheduler")]
        os.kill(workers[0].pid, signal.SIGKILL)

    result = run(small, once(("demo-0", "exercise", "running"), kill))
    single.assert_as_before()
    assert (result.code, result.err) == (6, "" + BACK_ONE + RUN)


def test_too_few_records_in_time(single: World, small: Project, run: Any) -> None:
    """Exit code 1: the verdict on what there is, and who is missing."""
    small.session["until"] |= {"count": 100, "timeout": "1s"}
    result = run(small)
    single.assert_as_before()
    assert (result.code, result.err) == (1, BACK_ONE + RUN)
    assert "TP0" in result.out
    assert "missing" in result.out


@pytest.mark.parametrize("stage", ["swap", "start_original"])
def test_a_bug_of_ours(
    world: World, project: Project, run: Any, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """An unforeseen failure on one host: the others get their turn, a trace is kept."""
    real = getattr(stages, stage)
    failed: list[str] = []

    def broken(member: Member) -> str:
        if member.name == "demo-1" and not failed:
            failed.append(member.name)
            raise RuntimeError("no such luck")
        return str(real(member))

    monkeypatch.setattr(stages, stage, broken)
    result = run(project)
    print(result.err)
    if stage == "swap":
        world.assert_as_before()
        assert (result.code, result.err) == (70, "" + BACK + RUN)
    else:
        assert result.code == 7
