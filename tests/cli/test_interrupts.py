"""Ctrl-C, SIGTERM and a closed terminal, at every stage of a command: one line, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The command line in a process of its own, whatever signals the caller of the tests ignores.
PRELUDE = """
import atexit, os, signal, sys, threading, types, weakref
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.{hup})
def send(number=signal.{number}):
    os.kill(os.getpid(), number)
def wait():
    threading.Event().wait(30)
class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            send()
def add(name, body):
    import click
    module = types.ModuleType("orchestrator.cli.commands." + name)
    module.command = click.command()(body)
    sys.modules[module.__name__] = module
sys.meta_path.insert(0, AtImport())
"""
MAIN = """
from orchestrator.__main__ import main
main()
"""
SWALLOWED = """
class Thing: pass
def body():
    thing = Thing()
    reference = weakref.ref(thing, lambda _: send())
    del thing
    wait()
add("check", body)
"""
TWICE = """
def body():
    try:
        send()
        wait()
    finally:
        send()
add("check", body)
"""
THRICE = TWICE.replace("finally:", "finally:\n        send()")
THRICE_RESTORING = THRICE.replace('"check"', '"revert"')
THRICE_ASKING = THRICE.replace('"check"', '"ask"')
AT_EXIT = """
def body():
    raise SystemExit(7)
add("revert", body)
atexit.register(send)
"""
ENDING = """
def body():
    from orchestrator.cli.interrupts import hold_signals
    hold_signals()
    send()
    send()
    wait()
add("run", body)
"""
RESTORING = """
def body():
    send()
    wait()
add("revert", body)
"""
IGNORED = """
def body():
    send()
    raise SystemExit(1)
add("check", body)
"""
ALONE, STILL = "interrupted\n", "still ending; once more leaves at once\n"


@pytest.mark.parametrize(
    ("body", "module", "number", "arguments", "code", "said"),
    [
        ("", "click", "SIGINT", ["check"], 130, ALONE),
        ("", "orchestrator.cli.commands.check", "SIGTERM", ["check"], 130, ALONE),
        ("", "orchestrator.spec.project", "SIGHUP", ["status"], 130, ALONE),
        (SWALLOWED, "", "SIGINT", ["check"], 130, ALONE),
        (TWICE, "", "SIGINT", ["check"], 130, STILL + ALONE),
        (THRICE, "", "SIGTERM", ["check"], 130, STILL),
        (TWICE, "", "SIGQUIT", ["check"], 130, ""),
        (ENDING, "", "SIGQUIT", ["run"], 7, "still ending; do not close this terminal\n"),
        ("", "click", "SIGQUIT", ["check"], 130, ALONE),
        (THRICE_RESTORING, "", "SIGINT", ["revert"], 7, STILL),
        (THRICE_ASKING, "", "SIGHUP", ["ask"], 7, STILL),
        (AT_EXIT, "", "SIGINT", ["revert"], 7, ""),
        (RESTORING, "", "SIGINT", ["revert"], 7,
         "interrupted; `sgldbg status` shows what is left\n"),
        (IGNORED, "", "SIGHUP", ["check"], 1, ""),
    ],
    ids=["imports", "command", "later", "swallowed", "twice", "thrice", "quit twice",
         "quit ending", "quit imports", "revert thrice",
         "ask thrice", "exit", "revert", "nohup"],
)  # fmt: skip
def test_a_signal_ends_a_command(
    body: str,
    module: str,
    number: str,
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
) -> None:
    """The exit code tells how it ended, and nothing but one line is said."""
    hup = "SIG_IGN" if body is IGNORED else "SIG_DFL"
    text = PRELUDE.format(number=number, module=module, hup=hup) + body + MAIN
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HOME": str(tmp_path), "SGLDBG_STATE": str(tmp_path),
             "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout) == (code, said, "")
