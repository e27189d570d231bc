"""The command group: lazy, with the exit codes of the reference, and no traceback for users."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest

from orchestrator.cli.app import COMMANDS, main
from orchestrator.errors import (
    FileError,
    FileErrors,
    HostError,
    OrchestratorError,
    PatchError,
    RevertIncompleteError,
    SessionError,
)
from orchestrator.model.outcome import ExitCode


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Runs a function as if it were the command `demo`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "state"))

    def call(function: Callable[[], object]) -> int:
        module = ModuleType("orchestrator.cli.commands.demo")
        module.command = click.command("demo")(function)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "orchestrator.cli.commands.demo", module)
        return main(["demo"])

    return call


def raises(error: BaseException) -> Callable[[], object]:
    """A command that fails."""

    def command() -> object:
        raise error

    return command


def with_own_code() -> SessionError:
    """A session's error that knows the final state."""
    error = SessionError("x")
    error.exit_code = ExitCode.NOT_RESTORED
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FileError("x"), 3),
        (FileErrors([FileError("x")]), 3),
        (PatchError("x", state="not found"), 4),
        (HostError("x", host="h", code="lost"), 5),
        (SessionError("x"), 6),
        (RevertIncompleteError("x", outcomes=(), remaining=()), 7),
        (with_own_code(), 7),
    ],
)
def test_exit_codes(
    error: OrchestratorError,
    code: int,
    run: Callable[[Callable[[], object]], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each class of error has its exit code and its text on stderr; stdout stays for data."""
    assert run(raises(error)) == code
    said = capsys.readouterr()
    assert said.err.startswith("error: x\n")
    assert said.out == ""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (lambda: None, 0),
        (lambda: ExitCode.NOT_AS_EXPECTED, 1),
        (raises(SystemExit(7)), 7),
        (raises(click.UsageError("x")), 2),
        (raises(KeyboardInterrupt()), 130),
    ],
)
def test_results(
    command: Callable[[], object], code: int, run: Callable[[Callable[[], object]], int]
) -> None:
    """What a command returns or exits with is the exit code."""
    assert run(command) == code


@pytest.mark.parametrize("error", [ValueError("boom"), BrokenPipeError("not of stdout")])
def test_bug(
    error: Exception,
    run: Callable[[Callable[[], object]], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bug of ours leaves its trace in a file that only the user can read, and one line."""
    assert run(raises(error)) == 70
    (path,) = (tmp_path / "state" / "traces").iterdir()
    said = capsys.readouterr().err
    assert said == (
        f"error: a bug of sgldbg: {type(error).__name__}: {error}; please report it with {path}\n"
    )
    assert "Traceback (most recent call last)" in path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_full_disk_is_no_bug(
    run: Callable[[Callable[[], object]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever a command meets one on this machine; the file is named where it is known."""
    for path, what in (("/v/f", "`/v/f`"), (None, "a file of this command")):
        full = OSError(errno.ENOSPC, "No space left on device", path)
        assert run(raises(full)) == 6
        assert capsys.readouterr().err == (
            f"error: {what} cannot be written on this machine: no space left on device\n"
            "hint: make room there\n"
        )


def test_bug_without_state(
    run: Callable[[Callable[[], object]], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where no file can be written the trace is shown."""
    (tmp_path / "state").write_text("in the way")
    assert run(raises(ValueError("boom"))) == 70
    assert "ValueError: boom" in capsys.readouterr().err


def test_help_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    """The help page lists every command with its line, in order."""
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    listed = [line.split()[0] for line in said.split("Commands:\n")[1].splitlines()]
    assert listed == list(COMMANDS)


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command is an error of usage."""
    assert main(["chek"]) == 2
    assert "No such command 'chek'" in capsys.readouterr().err


def call(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, **options
    )  # type: ignore[call-overload,no-any-return]


def test_help_is_light() -> None:
    """The help page needs click and nothing heavier."""
    code = (
        "import sys; from orchestrator.cli.app import main; main(['--help']);"
        "print(sorted({'yaml', 'pydantic', 'rich', 'libcst', 'fabric', 'paramiko',"
        " 'orchestrator.errors'} & set(sys.modules)), file=sys.stderr)"
    )
    assert call(code).stderr == "[]\n"


def test_closed_pipe(tmp_path: Path) -> None:
    """A reader that leaves early is no error and no traceback."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "schema", "patch"],
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=30,
            env={**os.environ, "HOME": str(tmp_path), "SGLDBG_STATE": str(tmp_path)},
            cwd=Path(__file__).resolve().parents[2],
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints name and version."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("sgldbg ")
