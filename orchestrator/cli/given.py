"""What this call was given: whether JSON is wanted, and what a command that is printed needs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

_KEY = "orchestrator.cli.given"
_COMMAND = re.compile(r"`sgldbg ([a-z]+)([^`]*)`")
# What a text calls the session file of this call.
_SESSION = "SESSION"
# Commands that find an inventory, and those that also look for patches.
_TAKE_INVENTORY = frozenset({"hosts", "plan", "run", "apply", "ask", "keep", "status", "revert"})
_TAKE_PATCHES = frozenset({"check", "plan", "run", "apply", "ask"})
# Any other command without words is only spoken of, as in "left so by `sgldbg apply`".
_COMPLETE_ALONE = frozenset({"hosts", "status"})


@dataclass
class Given:
    """Options and arguments of this call as they were typed; `shown`: stdout has its JSON."""

    as_json: bool = False
    inventory: Path | None = None
    patches: Sequence[Path] = ()
    session_file: Path | None = None
    shown: bool = False


def find_given() -> Given:
    """That of the command that runs now; nothing was given outside of one."""
    context = click.get_current_context(silent=True)
    return _of(context) if context is not None else Given()


def note_given(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Callback of a parameter that is called like a field of `Given`."""
    setattr(_of(context), str(parameter.name), value)
    return value


def _of(context: click.Context) -> Given:
    given: Given = context.meta.setdefault(_KEY, Given())
    return given


def complete(text: str, given: Given | None = None) -> str:
    """The text with commands of ours that can be pasted: they find what this call has found.

    `given` is for another thread than the command's, which has no context.
    """
    given = find_given() if given is None else given
    return _COMMAND.sub(lambda match: _complete(match, given), text)


def _complete(match: re.Match[str], given: Given) -> str:
    name, words = match[1], match[2].split()
    if not words and name not in _COMPLETE_ALONE:
        return match[0]
    has_session = _SESSION in words
    if given.session_file is not None:
        words = [shlex.quote(str(given.session_file)) if w == _SESSION else w for w in words]
    if name in _TAKE_INVENTORY and "--inventory" not in words:
        # A session file leads to its own inventory, as it did in this call.
        path = given.inventory or (None if has_session else _find_elsewhere(given))
        words += ["--inventory", shlex.quote(str(path))] if path is not None else []
    if name in _TAKE_PATCHES:
        folders = [*(_beside_inventory(given) if name == "check" else ()), *given.patches]
        words += [word for f in folders for word in ("--patches", shlex.quote(str(f)))]
    return "`" + " ".join(["sgldbg", name, *words]) + "`"


def _find_elsewhere(given: Given) -> Path | None:
    """The inventory of the session file, where the working directory has another one or none."""
    from orchestrator.spec.project import INVENTORY, find_inventory

    if given.session_file is None:
        return None
    found = find_inventory(given.session_file)
    return None if found == Path(INVENTORY) else found


def _beside_inventory(given: Given) -> list[Path]:
    """The folder of a project's own patches, which `check` seeks in the working directory only."""
    path = given.inventory or _find_elsewhere(given)
    folder = path.parent / "patches" if path is not None else Path("patches")
    return [folder] if folder != Path("patches") and folder.is_dir() else []
