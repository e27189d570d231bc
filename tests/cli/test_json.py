"""`--json`: one document on stdout for every exit code but 2, with the facts of the text."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from orchestrator.cli.app import COMMANDS, main
from orchestrator.cli.render import show_json
from orchestrator.errors import (
    DiskError,
    FileError,
    FileErrors,
    HostError,
    OrchestratorError,
    PatchError,
    RevertIncompleteError,
)
from orchestrator.model.outcome import Outcome
from orchestrator.model.source import Span

ASK = ("--site", "p.1", "--capture", "x")
# What each needs so that its command line is right; the rest has no `--json`.
WORDS = {
    "check": ("s.yaml",),
    "hosts": (),
    "plan": ("s.yaml",),
    "run": ("s.yaml",),
    "apply": ("s.yaml",),
    "ask": ("s.yaml", *ASK),
    "keep": ("s.yaml",),
    "status": (),
    "revert": ("s.yaml",),
    "demo": (),
}
CUT_SHORT = {"ask", "keep", "revert"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and nothing of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SGLDBG_STATE", str(tmp_path / "state"))


def find_command(name: str) -> click.Command:
    """A command as it stands."""
    command: click.Command = import_module(f"orchestrator.cli.commands.{name}").command
    return command


def test_no_command_is_left_out() -> None:
    """Whatever has the option is tried below."""
    having = [
        name
        for name in COMMANDS
        if any("--json" in parameter.opts for parameter in find_command(name).params)
    ]
    assert set(having) == set(WORDS)


@pytest.mark.parametrize("name", [name for name in WORDS if name != "demo"])
def test_files_that_are_wrong(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3 has its document, too: with all problems, each with its place."""
    Path("s.yaml").write_text("session: x\nbogus: 1\n")
    Path("inventory.yaml").write_text("hostss: {}\n")
    assert main([name, *WORDS[name], "--json"]) == 3
    said = capsys.readouterr()
    facts = json.loads(said.out)
    problems = facts["problems"] if name == "check" else facts["error"]["problems"]
    assert problems
    assert all(problem["place"] for problem in problems)
    if name != "check":  # it has nothing to tell of hosts, and is silent beside its document
        assert facts["exit_code"] == 3
        assert all(f"error: {problem['message']}\n" in said.err for problem in problems)


def test_nothing_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    """No file at all is told in the form that `check` has for files."""
    assert main(["check", "--json"]) == 3
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], [p["message"] for p in facts["problems"]]) == (
        [],
        ["there is nothing to check in this folder"],
    )


HOSTS = (Outcome("h", "end", False, "patched", "not back", "x"),)
REFUSED = HostError("it said no", host="h", code="auth", hints=("see `sgldbg status`",))
REFUSED.outcomes = HOSTS
ENDS: list[tuple[BaseException, int, str]] = [
    (FileErrors([FileError("wrong", span=Span("f", 1, 1, 1, 2))]), 3, "1 problem"),
    (PatchError("no place", state="not found"), 4, "no place"),
    (REFUSED, 5, "it said no"),
    (DiskError("full"), 6, "full"),
    (RevertIncompleteError("left", outcomes=HOSTS, remaining=["h: do"]), 7, "left"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (ValueError("boom"), 70, ""),
]


@pytest.mark.parametrize("name", WORDS)
def test_every_failure_has_its_document(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever ends a command before it has shown anything, for every code that an error has."""
    for error, code, message in ENDS:
        monkeypatch.setattr(find_command(name), "callback", _raise(error))
        cut_short = code == 130 and name in CUT_SHORT
        ended = 7 if cut_short else code
        assert main([name, *WORDS[name], "--json"]) == ended
        facts = json.loads(capsys.readouterr().out)
        assert facts["exit_code"] == ended
        if code == 70:
            assert (facts["error"], facts["bug"]) == (None, "ValueError: boom")
            continue
        text = "interrupted; `sgldbg status` shows what is left" if cut_short else message
        assert (facts["error"]["message"], facts["bug"]) == (text, None)
        outcomes = error.outcomes if isinstance(error, OrchestratorError) else ()
        assert facts["hosts"] == {
            o.host: {"files": o.state, "server": o.server, "message": o.message} for o in outcomes
        }


def _raise(error: BaseException) -> Callable[..., Any]:
    def body(**arguments: Any) -> None:
        raise error

    return body


def test_a_document_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What fails after a command has shown its own stands on stderr only."""

    def body(**arguments: Any) -> None:
        show_json({"h": 1})
        raise REFUSED

    monkeypatch.setattr(find_command("hosts"), "callback", body)
    assert main(["hosts", "--json"]) == 5
    said = capsys.readouterr()
    assert json.loads(said.out) == {"h": 1}
    assert said.err.startswith("error: it said no\n")


def test_without_the_option_stdout_stays_for_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No document where none was asked for."""
    for error, _, _ in ENDS:
        monkeypatch.setattr(find_command("hosts"), "callback", _raise(error))
        main(["hosts"])
        assert capsys.readouterr().out == ""
