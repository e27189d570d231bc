"""Which Python a YAML value may hold."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from orchestrator.spec.code import (
    check_anchor,
    check_expression,
    check_header,
    check_statements,
)
from orchestrator.spec.newer import find_older


@pytest.mark.parametrize(
    "code",
    [
        "x = $_",
        "foo($$$)",
        "foo($A, $$$REST, key=$B)",
        "$$$BODY",
        "return $X",
        "yield",
        "await x",
        "break",
        "x: int = 1",
        "if x:",
        "while $COND:",
        "for $_ in x:",
        "async for a in b:",
        "try:",
        "with a as b, c:",
        "async with a:",
        "match x:",
        "def f($$$ARGS):",
        "async def f(self, *args) -> int:",
        "class A(B):",
        "if x: y = 1",
        "x = f(\n    a,\n)",
        "assert x, '$name'",
        "elif_x = 1",
        "x = {'$a': 1}  # $a",
    ],
)
def test_anchors(code: str) -> None:
    """Any one statement, or the header of one, with metavariables."""
    if code in ("assert x, '$name'", "x = {'$a': 1}  # $a"):
        assert check_anchor(code) == code  # inside of text a `$` is just a character
    assert check_anchor(f"  {code} ") == code


@pytest.mark.parametrize(
    "code",
    [
        *("", "x; y", "# x", "else:", "elif x:", "except E:", "finally:", "$x", "x =", "@d"),
        *("if x", "a\0b", "$1", "case 1:", "(" * 5000, "x" * 10_001),
    ],
    ids=lambda code: code[:10],
)
def test_no_anchors(code: str) -> None:
    """Parts of statements, several, none, and what is too deep or long."""
    with pytest.raises(PydanticCustomError):
        check_anchor(code)


@pytest.mark.parametrize(
    "code",
    [
        "x",
        "x.shape[-1] == 3 * y.shape[-1]",
        "[a for a in b if a > c]",
        "lambda: x",
        "f'{x:>{w}}'",
        "x is 1",
        '"\\d"',
        "(x,\n y)",
        "x if y else z",
    ],
)
def test_expressions(code: str) -> None:
    """Any expression, with no warning about its taste."""
    assert check_expression(f" {code}\n") == code


@pytest.mark.parametrize(
    "code",
    [
        *("", " ", "x = 1", "(x := 1)", "[y := x]", "*x", "yield x", "await x", "x; y", "$X"),
        *("import os", "a\0b", "x\ny", "-" * 9_000 + "1", "[" * 300 + "]" * 300),
    ],
    ids=lambda code: code[:10],
)
def test_no_expressions(code: str) -> None:
    """What assigns, suspends, is none, or is too deep to be handled safely."""
    with pytest.raises(PydanticCustomError):
        check_expression(code)


NEWER = [
    ('x = f"{d["a"]}"', (3, 12), "x = '''_____'''"),
    ("x = f\"{'\\n'.join(y)}\"", (3, 12), "x = '''___________'''"),
    ('x = f"{a # b\n}" + y', (3, 12), "x = '''_____\n''' + y"),
    ("x = f'{a}{d[\"a\"]!r:>{w}}{{}}'", None, ""),
    ('x = "{" + f"{d["a"]=}"', (3, 12), "x = \"{\" + '''______'''"),
    ('x = f"\\N{EM DASH}{d["a"]}"', (3, 12), "x = '''________________'''"),
    ('x = rt"{y}"', (3, 14), "x = '''_'''"),
    ("type Pair[T] = (T, T)", (3, 12), "type_Pair    = (T, T)"),
    ("class A[*Ts, **P](B):", (3, 12), "class A          (B):"),
    ("if x:\n    async def f[T]():", (3, 12), "if x:\n    async def f   ():"),
    ("except* A, B:", (3, 14), "except* A| B:"),
    ("except A, B as e:", None, ""),
    ('if"t" in x: pass', None, ""),
    ('x = f"{d["a"]', None, ""),
]


@pytest.mark.parametrize(("code", "since", "older"), NEWER)
def test_newer_syntax(code: str, since: tuple[int, int] | None, older: str) -> None:
    """What a Python does not read yet is read as older code; what it reads is left as it is."""
    for version in ((3, 11), (3, 12), (3, 13), (3, 14)):
        assert find_older(code, version) == (older if since and version < since else None)


def test_headers() -> None:
    """What stands around an anchor is named by its header."""
    assert check_header(" if x: ") == "if x:"
    with pytest.raises(PydanticCustomError, match="end with a colon"):
        check_header("if x")


@pytest.mark.parametrize("code", ["for i in x:  # c", "class K:  #: c", "x = '#'  # c",
                                  "if (a and  # one\n    '#'):  # two", "x = 1  # $A"])  # fmt: skip
def test_comments(code: str) -> None:
    """A comment behind an anchor counts as little as one in it."""
    assert check_anchor(code) == code
    if ":  #" in code:
        assert check_header(code) == code
    assert check_header("else:  # c") == "else:  # c"
    for wrong in ("for i in x  # c:", "if x:  '# c'  y"):
        with pytest.raises(PydanticCustomError):
            check_anchor(wrong)


def test_statements() -> None:
    """The indentation that all lines share is taken off, blank lines stay."""
    assert check_statements("\n  if x:\n\n      y = 1\n") == "if x:\n\n    y = 1\n"
    for code in ("", "# only a comment", "  x\n y", "if x:", "$X = 1"):
        with pytest.raises(PydanticCustomError):
            check_statements(code)
