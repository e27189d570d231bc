"""Output that nobody gets: the exit code still tells of the hosts, and no trace is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TextIO

import click
import pytest

from orchestrator.cli.app import main

ROOT = Path(__file__).resolve().parents[2]

# Stands in for a command that has said what it has to say and knows how the hosts are.
ENDS = """
import sys, types, click
from orchestrator.cli.app import main
def body():
    click.echo("data " * 10_000)
    raise SystemExit({code})
module = types.ModuleType("orchestrator.cli.commands.{name}")
module.command = click.command()(body)
sys.modules[module.__name__] = module
sys.exit(main(["{name}"]))
"""
FULL = "stdout took no more: no space left on device\n"
CLOSED = "stdout took no more: it is closed\n"
UNREAD = "what stdout was to show was not read to its end\n"


def run(code: str, stdout: str, tmp_path: Path) -> tuple[int, str]:
    """Exit code and stderr with a stdout that is `full`, `closed` or `unread`."""
    read, write = os.pipe()
    os.close(read)
    redirected = {"full": ">/dev/full", "closed": ">&-", "unread": f">&{write}"}[stdout]
    try:
        done = subprocess.run(
            ["/bin/bash", "-c", f'exec "$0" -c "$1" {redirected}', sys.executable, code],
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            env={**os.environ, "HOME": str(tmp_path), "SGLDBG_STATE": str(tmp_path)},
            cwd=ROOT,
            pass_fds=[write],
            check=False,
        )
    finally:
        os.close(write)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("name", "own", "stdout", "code", "said"),
    [
        ("run", 0, "full", 0, FULL),
        ("plan", 0, "closed", 74, CLOSED),
        ("check", 0, "unread", 141, ""),
    ],
)
def test_nothing_fails_at_the_exit(
    name: str, own: int, stdout: str, code: int, said: str, tmp_path: Path
) -> None:
    """Nor does what was still buffered: no traceback, no trace file, no exit code of Python's."""
    assert run(ENDS.format(name=name, code=own), stdout, tmp_path) == (code, said)
    assert list(tmp_path.iterdir()) == []


def _unread() -> TextIO:
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "w")


@pytest.mark.parametrize(
    ("name", "own", "unread", "code", "said"),
    [
        ("revert", 7, False, 7, FULL),
        ("demo", 6, False, 6, FULL),
        ("keep", 0, True, 0, UNREAD),
        ("apply", 0, True, 0, UNREAD),
        ("ask", 1, True, 1, UNREAD),
        ("hosts", 0, False, 74, FULL),
        ("check", 3, True, 3, ""),
        ("status", 7, False, 7, FULL),
    ],
)
def test_the_exit_code_is_that_of_the_hosts(
    name: str,
    own: int,
    unread: bool,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What may have changed a host keeps its code; what was only to be read has not been shown."""

    def body() -> None:
        click.echo("data")
        raise SystemExit(own)

    module = ModuleType(f"orchestrator.cli.commands.{name}")
    module.command = click.command()(body)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with _unread() if unread else open("/dev/full", "w", encoding="utf-8") as lost:
        monkeypatch.setattr(sys, "stdout", lost)
        assert main([name]) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("arguments", [["chek"], []])
def test_nothing_to_say_is_nothing_lost(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A closed stdout concerns nobody as long as nothing is written to it."""
    monkeypatch.setattr(sys, "stdout", None)
    assert main(arguments) == 2
    assert "stdout" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", "h\u00e9 \u2713 \\udc80\n"), ("latin-1", "h\u00e9 \\u2713 \\udc80\n")],
)
def test_what_an_encoding_lacks_is_escaped(encoding: str, shown: str, tmp_path: Path) -> None:
    """No character ends a command, not even half of a file name's."""
    code = ENDS.replace('"data " * 10_000', '"h\\u00e9 \\u2713 \\udc80"')
    done = subprocess.run(
        [sys.executable, "-c", code.format(name="run", code=1)],
        capture_output=True,
        timeout=30,
        env={**os.environ, "PYTHONIOENCODING": encoding, "SGLDBG_STATE": str(tmp_path)},
        cwd=ROOT,
        check=False,
    )
    wanted = shown.encode("utf-8" if encoding == "ascii" else encoding)
    assert (done.returncode, done.stdout, done.stderr) == (1, wanted, b"")
