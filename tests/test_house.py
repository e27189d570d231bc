"""The sizes and names that keep the house habitable, held by a test so that nobody has to nag."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 50
# Names that say nothing of what is inside, so that everything ends up there.
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "misc"}
# Only the cli speaks to the terminal; on a host the agent's command line and its guard do.
SPEAKERS = ("orchestrator/cli/", "orchestrator/__main__.py", "orchestrator/onhost/agent/")
# A miniature server prints as the real one does.
MINIATURE = "orchestrator/demo/miniature/"


def sources(*folders: str) -> list[Path]:
    """Python files that we wrote as code; those under `cases` are data."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if "cases" not in path.relative_to(ROOT).parts)


def name_of(path: Path) -> str:
    """The path below the checkout, with slashes."""
    return path.relative_to(ROOT).as_posix()


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a file."""
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", sources("orchestrator", "tests"), ids=name_of)
def test_sizes_and_names(path: Path) -> None:
    """No giant file, no giant function, no module named after nothing, and a word on its use."""
    problems = []
    lines = len(path.read_bytes().splitlines())
    if lines > MAX_MODULE_LINES:
        problems.append(f"{lines} lines, the limit is {MAX_MODULE_LINES}")
    if EMPTY_NAMES & set(path.stem.lower().split("_")):
        problems.append(f"`{path.stem}` says nothing of what is inside")
    for function in functions_of(path):
        size = (function.end_lineno or function.lineno) - function.lineno + 1
        if size > MAX_FUNCTION_LINES:
            problems.append(
                f"line {function.lineno}: `{function.name}` has {size} lines,"
                f" the limit is {MAX_FUNCTION_LINES}"
            )
    assert not problems, f"{name_of(path)}: " + "; ".join(problems)


@pytest.mark.parametrize("path", sources("orchestrator"), ids=name_of)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    """The first statement of a module is its docstring."""
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text)), f"{name_of(path)}: no docstring"


@pytest.mark.parametrize(
    "path",
    [p for p in sources("orchestrator") if not name_of(p).startswith((*SPEAKERS, MINIATURE))],
    ids=name_of,
)
def test_only_the_cli_prints_or_exits(path: Path) -> None:
    """A part hands back values and raises errors; printing and exiting are the cli's."""
    found = [
        f"{name_of(path)}:{node.lineno}: {called}"
        for node in ast.walk(ast.parse(path.read_bytes(), str(path)))
        if isinstance(node, ast.Call)
        and (called := ast.unparse(node.func)) in ("print", "sys.exit", "exit", "os._exit")
    ]
    assert not found, "\n".join(found)
