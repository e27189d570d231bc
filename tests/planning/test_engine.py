"""The worker process plans, dies without harm, and is never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.diagnostics import render
from orchestrator.errors import PatchError
from orchestrator.model.patch import Probe
from orchestrator.model.plan import Plan
from orchestrator.session.engine import Engine
from tests.planning.making import FILE, RUNTIME, SOURCE, make_anchor, make_patch, make_view


def _pid(engine: Engine) -> int:
    assert engine._worker is not None
    pid = engine._worker[0].pid
    assert pid is not None
    return pid


def _plan_one(engine: Engine, source: bytes = SOURCE) -> Plan:
    views = [make_view("a", {FILE: source})]
    return engine.plan("s1", [make_patch("p", Probe())], views, RUNTIME)


def _is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_plans_and_errors_cross_the_process_whole() -> None:
    """A plan comes back as it was made; an error keeps its state, notes, hints, file and hosts."""
    with Engine() as engine:
        pid = _pid(engine)
        plan = engine.plan("s1", [make_patch("p", Probe())], [make_view("a")], RUNTIME)
        assert [f.file for f in plan.files] == ["sglang/_sgldbg.py", FILE]
        with pytest.raises(PatchError) as caught:
            engine.plan("s1", [make_patch("p", (make_anchor("h = 1"),))], [make_view("a")], RUNTIME)
        error = caught.value
        assert (error.state, error.file, error.hosts) == ("not found", FILE, ("a",))
        assert error.hints == ("the function itself is there: `at: start`",)
        assert _pid(engine) == pid
    assert _is_gone(pid)


def test_a_worker_that_dies_while_it_plans_is_replaced() -> None:
    """Death is an error of that plan that says what happened; another worker makes the next."""
    with Engine() as engine:
        pid = _pid(engine)
        os.kill(pid, signal.SIGSTOP)  # so that it dies with the request unanswered
        killer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(PatchError) as caught:
            _plan_one(engine)
        killer.join()
        assert render(caught.value) == (
            "error: the process that plans died (by signal SIGKILL)\n"
            "note: nothing was written on any host\n"
            "hint: a file that the patches name may be nested too deeply, or be too large"
        )
        assert len(_plan_one(engine).files) == 2
        assert _pid(engine) != pid


def test_an_idle_worker_that_died_is_replaced_unseen() -> None:
    """Nobody asked it anything: the next plan is simply made by another."""
    with Engine() as engine:
        pid = _pid(engine)
        os.kill(pid, signal.SIGKILL)
        assert engine._worker is not None
        engine._worker[0].join()
        assert len(_plan_one(engine).files) == 2


def test_a_worker_that_takes_too_long_is_ended() -> None:
    """The time is bounded, and the process does not go on behind our back."""
    with Engine(timeout_s=0.5) as engine:
        pid = _pid(engine)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(PatchError) as caught:
            engine.plan("s1", [make_patch("p", Probe())], [make_view("a")], RUNTIME)
        assert caught.value.message == "planning took longer than 0.5 s"
        assert _is_gone(pid)


def test_a_removed_working_directory_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker needs none, and we stand where we stood."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with Engine() as engine:
        assert len(_plan_one(engine).files) == 2
    with pytest.raises(FileNotFoundError):
        os.getcwd()


def test_too_little_memory_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    """LibCST's parser aborts the process then: the plan fails, the terminal stays clean."""
    source = SOURCE + b"\n" + b"x = [1, 2, 3]\n" * 20_000
    with Engine(memory_bytes=420 << 20) as engine:
        with pytest.raises(PatchError) as caught:
            _plan_one(engine, source)
        assert caught.value.state == "engine"
        assert len(_plan_one(engine).files) == 2
    assert capfd.readouterr() == ("", "")


def test_a_worker_that_cannot_import_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every plan tells the cause, and that it is the installation's, not the patch's."""
    (tmp_path / "libcst.py").write_text("raise ImportError('no native code for this machine')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with Engine() as engine:
        pid = _pid(engine)
        for _ in range(2):
            with pytest.raises(PatchError) as caught:
                _plan_one(engine)
            assert render(caught.value) == (
                "error: the process that plans could not begin: ImportError: no native code for"
                " this machine\n"
                f'note: File "{tmp_path}/libcst.py", line 1, in <module>\n'
                "          raise ImportError('no native code for this machine')\n"
                "      ImportError: no native code for this machine\n"
                "note: nothing was written on any host\n"
                "hint: install sgldbg anew, in an environment of its own: something it needs does"
                " not load"
            )
        assert _pid(engine) == pid


def test_a_bug_of_planning_gives_no_advice() -> None:
    """What nobody foresaw is told with its place, and the worker lives on."""
    with Engine() as engine:
        with pytest.raises(PatchError) as caught:
            engine.plan("s1", [make_patch("p", Probe())], [None], RUNTIME)  # type: ignore[list-item]
        error = caught.value
        assert error.message.startswith("planning failed: AttributeError: 'NoneType' object has no")
        assert (error.notes[1:], error.hints) == (("nothing was written on any host",), ())
        assert len(_plan_one(engine).files) == 2


def test_ctrl_c_finds_no_worker_that_is_not_ready_for_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It goes to the whole group, also while the worker imports: nothing dies, nothing is shown."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with Engine() as engine:
        os.kill(_pid(engine), signal.SIGINT)
        assert len(_plan_one(engine).files) == 2
        os.kill(_pid(engine), signal.SIGINT)
        assert len(_plan_one(engine).files) == 2
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert capfd.readouterr() == ("", "")


def test_endless_parsing_is_an_error() -> None:
    """LibCST's parser is quadratic in the depth of nesting: the time is bounded."""
    with Engine(timeout_s=1.0) as engine:
        with pytest.raises(PatchError) as caught:
            _plan_one(engine, SOURCE + b"y = " + b" + ".join([b"x"] * 20_000) + b"\n")
        assert caught.value.message == "planning took longer than 1 s"


def test_nesting_of_real_code_is_no_problem() -> None:
    """What Python's usual limit would not carry is planned all the same."""
    source = b"def forward(x):\n    hidden = g(x)\n    y = " + b" + ".join([b"x"] * 500) + b"\n"
    with Engine() as engine:
        plan = engine.plan(
            "s1", [make_patch("p", Probe())], [make_view("a", {FILE: source})], RUNTIME
        )
    assert plan.sites()[0].line == 2


def test_sizes_of_real_code_are_no_problem() -> None:
    """A literal of 10,000 elements, an expression of 500 terms and 7,000 lines are all one plan."""
    elements = ", ".join(map(str, range(10_000)))
    terms = " + ".join(f"x{n}" for n in range(500))
    lines = "".join(f"def f{n}(x):\n    return x\n" for n in range(3_500))
    source = f"x = TABLE = [{elements}]\n\ndef sum_all():\n    return {terms}\n\n{lines}".encode()
    table = replace(make_anchor("x = TABLE = $_"), scope=None)
    summed = replace(make_anchor("return $_"), scope="sum_all", position="before")
    patch = make_patch("p", (table,), (summed,))
    with Engine() as engine:
        plan = engine.plan("s1", [patch], [make_view("a", {FILE: source})], RUNTIME)
    assert [site.line for site in plan.files[-1].sites] == [1, 4]


def test_the_worker_ends_with_an_exception() -> None:
    """Leaving by an error ends the process too."""

    class Unforeseen(Exception):
        pass

    pids = []
    with pytest.raises(Unforeseen):  # noqa: SIM117, PT012
        with Engine() as engine:
            pids.append(_pid(engine))
            raise Unforeseen
    assert _is_gone(pids[0])


def test_the_controller_does_not_import_libcst() -> None:
    """Starting the engine costs the controller none of the worker's imports."""
    code = "import sys, orchestrator.session.engine; print('libcst' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_a_worker_does_not_outlive_a_killed_controller() -> None:
    """Nobody is left to close the connection but the kernel, and that is enough."""
    code = (
        "import os, signal\n"
        "from orchestrator.session.engine import Engine\n"
        "if __name__ == '__main__':\n"
        "    engine = Engine().__enter__()\n"
        "    print(engine._worker[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(ran.stdout)
    deadline = time.monotonic() + 30
    while not _is_gone(pid) and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
