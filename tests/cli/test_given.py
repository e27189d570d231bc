"""Commands that we print can be pasted: they find the hosts and files that this call has found."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from orchestrator.cli.app import COMMANDS, main
from orchestrator.cli.given import complete
from orchestrator.cli.render import say
from orchestrator.errors import HostError

SOURCES = Path(__file__).resolve().parents[2] / "orchestrator"
ASK = ("--site", "p.1", "--capture", "x")
REVERT = "`sgldbg revert --all`"


@pytest.fixture
def shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What a text becomes in a call with these arguments."""
    monkeypatch.chdir(tmp_path)

    def show(text: str, name: str, *words: str) -> str:
        command: click.Command = import_module(f"orchestrator.cli.commands.{name}").command

        def body(**arguments: Any) -> None:
            say(text)

        monkeypatch.setattr(command, "callback", body)
        assert main([name, *words]) == 0
        return capsys.readouterr().err.removesuffix("\n")

    return show


@pytest.mark.parametrize(
    ("words", "text", "wanted"),
    [
        (("apply", "s.yaml"), "`sgldbg revert SESSION`", "`sgldbg revert s.yaml`"),
        (
            ("apply", "s.yaml", "--inventory", "x.yaml", "--runs", "r"),
            "`sgldbg revert SESSION`, `sgldbg keep SESSION`",
            "`sgldbg revert s.yaml --inventory x.yaml`, `sgldbg keep s.yaml --inventory x.yaml`",
        ),
        (
            ("keep", "a b.yaml", "--inventory", "it's.yaml"),
            "`sgldbg revert SESSION`",
            "`sgldbg revert 'a b.yaml' --inventory 'it'\"'\"'s.yaml'`",
        ),
        (("status", "--inventory", "x.yaml"), REVERT, "`sgldbg revert --all --inventory x.yaml`"),
        (("status",), f"see `sgldbg status`; {REVERT}", f"see `sgldbg status`; {REVERT}"),
        (
            ("revert", "--all", "--inventory", "x.yaml"),
            "`sgldbg status`, then `sgldbg revert --all --gone k0`",
            "`sgldbg status --inventory x.yaml`, then"
            " `sgldbg revert --all --gone k0 --inventory x.yaml`",
        ),
        (
            ("run", "s.yaml", "--inventory", "x.yaml"),
            "left so by `sgldbg apply`, like `sgldbg` does",
            "left so by `sgldbg apply`, like `sgldbg` does",
        ),
        (
            ("ask", "s.yaml", *ASK, "--patches", "p", "--patches", "q", "--inventory", "x.yaml"),
            "`sgldbg apply SESSION`",
            "`sgldbg apply s.yaml --inventory x.yaml --patches p --patches q`",
        ),
        (
            ("plan", "s.yaml", "--patches", "p"),
            "`sgldbg check x --against 1 --explain`",
            "`sgldbg check x --against 1 --explain --patches p`",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_holds_what_was_given(
    words: tuple[str, ...], text: str, wanted: str, shown: Callable[..., str]
) -> None:
    """Options that were needed to find things are repeated, as a shell takes them."""
    Path("p").mkdir()
    Path("q").mkdir()
    assert shown(text, *words) == wanted


def test_a_session_elsewhere_leads_to_its_own_inventory(
    shown: Callable[..., str], tmp_path: Path
) -> None:
    """What is told by the session file needs no option; what is told without it does.

    The working directory's inventory, where it has one, is of another cluster.
    """
    there = tmp_path / "there"
    (there / "sessions").mkdir(parents=True)
    (there / "patches").mkdir()
    for folder in (tmp_path, there):
        (folder / "inventory.yaml").write_text("")
    session = "there/sessions/s.yaml"
    assert shown(f"{REVERT}, `sgldbg revert SESSION`", "run", session) == (
        f"`sgldbg revert --all --inventory there/inventory.yaml`, `sgldbg revert {session}`"
    )
    assert shown("`sgldbg check x --against 1`", "plan", session) == (
        "`sgldbg check x --against 1 --patches there/patches`"
    )
    (tmp_path / "s.yaml").write_text("")
    assert shown(REVERT, "run", "s.yaml") == REVERT


def test_an_error_is_told_with_such_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also one that ends the command, and the usage that is wrong."""
    monkeypatch.chdir(tmp_path)
    command: click.Command = import_module("orchestrator.cli.commands.hosts").command

    def body(**arguments: Any) -> None:
        raise HostError("no", host="h", code="auth", hints=(REVERT,))

    monkeypatch.setattr(command, "callback", body)
    assert main(["hosts", "--inventory", "x.yaml"]) == 5
    hint = "hint: `sgldbg revert --all --inventory x.yaml`\n"
    assert capsys.readouterr().err == f"error: no\n --> host h\n{hint}"


def test_outside_of_a_command_nothing_was_given() -> None:
    """A text stays as it is."""
    assert complete(REVERT) == REVERT


def find_printed() -> Iterator[tuple[str, str]]:
    """Every command of ours in a text of the source, with the file; docstrings are no output."""
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_bytes())
        about = {
            id(node.value) for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }  # fmt: skip
        for node in ast.walk(tree):
            text = ast.unparse(node) if isinstance(node, ast.JoinedStr) else ""
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = "" if id(node) in about else node.value
            for found in re.findall(r"`sgldbg ([a-z]+(?: [^`]+)?)`", text):
                yield path.name, found


def test_every_printed_command_can_be_given() -> None:
    """The command line that a text shows is right, up to what the call fills in."""
    found = list(find_printed())
    assert len({words for _, words in found}) > 5
    for file, words in found:
        name, *rest = re.sub(r"%s|\{[^}]*\}", "x", words).split()
        assert name in COMMANDS, (file, words)
        if rest:
            command: click.Command = import_module(f"orchestrator.cli.commands.{name}").command
            with command.make_context(name, rest) as context:
                given = context.params
            assert name != "revert" or given["everything"] or given["session_file"], (file, words)
