"""What the pages say of the command line is true of it."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from orchestrator.cli.app import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def read_calls(page: Path) -> list[list[str]]:
    """The words of every `sgldbg ...` in backticks or at the begin of a line of a block."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"`(?:[\w/.]*/)?sgldbg ([^`]+)`", text)
    found += re.findall(r"^(?:\$ )?(?:[\w/.]*/)?sgldbg ([^`\n#]+)", text, re.M)
    return [call.split() for call in found]


def find_command(words: list[str]) -> click.Command:
    """The command that these words call."""
    command: click.Command = import_module(f"orchestrator.cli.commands.{words[0]}").command
    if isinstance(command, click.Group):
        return command.commands[words[1]]
    return command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    """A command, and every option beside it, is one that the program knows."""
    for words in read_calls(page):
        if words[0] in ("--help", "--version", "COMMAND"):
            continue
        assert words[0] in COMMANDS, words
        if words[0] == "new" and words[1:] == []:
            continue
        known = {name for option in find_command(words).params for name in option.opts}
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= known | {"--help"}, words


def test_calls_are_found() -> None:
    """The pages do name commands; what finds none of them is no test."""
    found = {words[0] for page in PAGES for words in read_calls(page)}
    assert set(COMMANDS) <= found | {"schema"}
