"""Every code that an error can carry is explained, and no other: found in the source itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
SOURCES = sorted((ROOT / "orchestrator").rglob("*.py"))
# The call that makes an error -> the argument with its code: a keyword, or a position.
MAKERS: dict[str, str | int] = {"HostError": "code", "Refusal": 0, "PatchError": "state"}


def find_codes(tree: ast.Module, *makers: str) -> Iterator[str]:
    """The codes of all errors that this module makes; a code that cannot be told fails."""
    for call in ast.walk(tree):
        maker = ast.unparse(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or maker not in makers:
            continue
        where = MAKERS[maker]
        if isinstance(where, int):
            yield from read_words(call.args[where], tree)
        for keyword in call.keywords:
            if keyword.arg == where:
                yield from read_words(keyword.value, tree)


def read_words(node: ast.expr, tree: ast.Module) -> Iterator[str]:
    """The texts that an expression may be; another error's own code is told where that is made."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=body, orelse=orelse):
            yield from read_words(body, tree)
            yield from read_words(orelse, tree)
        case ast.Dict(values=values):
            for value in values:
                yield from read_words(value, tree)
        case ast.Call(func=ast.Attribute(value=looked_in, attr="get"), args=[_, *default]):
            for part in default or [looked_in]:
                yield from read_words(part, tree)
        case ast.Call(func=ast.Name(id="str"), args=[inner]):
            yield from read_words(inner, tree)
        case ast.Name(id=name):
            for value in _assigned(name, tree):
                yield from read_words(value, tree)
        case ast.Attribute(attr="code" | "state"):
            return
        case _:
            pytest.fail(f"cannot tell what {ast.unparse(node)} may be")


def _assigned(name: str, tree: ast.Module) -> list[ast.expr]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    found.append(node.value)
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = zip(target.elts, node.value.elts, strict=True)
                    found += [v for t, v in pairs if isinstance(t, ast.Name) and t.id == name]
    assert found, f"nothing is assigned to `{name}`"
    return found


def read_rows(page: str, head: str) -> list[str]:
    """The first cells of the table with this head."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    assert head in text
    table = text.split(head, 1)[1].split("\n\n", 1)[0]
    return [code for row in table.splitlines() for code in re.findall(r"^\| `(.+?)` \|", row)]


@pytest.mark.parametrize(
    ("page", "head", "makers"),
    [
        ("errors.md", "| code | means | what to do |", ("HostError", "Refusal")),
        ("patch-states.md", "| state | what it means | what helps |", ("PatchError",)),
    ],
    ids=["hosts", "patches"],
)
def test_every_code_has_its_row(page: str, head: str, makers: tuple[str, ...]) -> None:
    """Nobody meets a code of `--json` that no page knows, and no row is of a code that is gone."""
    made: set[str] = set()
    for path in SOURCES:
        made.update(find_codes(ast.parse(path.read_bytes(), str(path)), *makers))
    rows = read_rows(page, head)
    assert rows == sorted(set(rows)) or page == "patch-states.md"
    assert made - {""} == set(rows)


def test_codes_are_found_wherever_they_stand() -> None:
    """Names, choices, tables and defaults are followed; another error's code is not ours."""
    tree = ast.parse("""
CODES = {1: "one", 2: "two"}
def f(error, reply):
    code, what = ("three" if reply else "four"), "no"
    raise HostError("x", host="h", code=code)
    raise refusal.Refusal(CODES.get(error.errno), "no")
    raise HostError("x", code=str(reply.get("code", "five")))
    raise HostError("x", code=error.code)
""")
    found = list(find_codes(tree, "HostError", "Refusal"))
    assert found == ["three", "four", "one", "two", "five"]
