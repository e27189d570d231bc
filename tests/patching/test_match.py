"""What counts when code is compared, and what does not."""

from __future__ import annotations

import libcst as cst
import pytest

from orchestrator.patching.structure.match import match, same_code
from orchestrator.patching.structure.pattern import PatternError, parse_pattern

EQUAL = [
    ("x = f(a, b)", "x = (f(a,\n  b,  # note\n))"),
    ("x = 'a' \"b\"", 'x = r"ab"'),
    ("x = 'it''s'", 'x = "its"'),
    ("x = u'a'", "x = 'a'"),
    ("x = 1_000", "x = 1000"),
    ("x = 0x10", "x = 16"),
    ("x = 1e3", "x = 1000.0"),
    ("f(**$X)", "f(**kw)"),
    ("x[a, b]", "x[(a, b)]"),
    ("x[1:2]", "x[1:2:]"),
    ("x[$$$] = 1", "x[a:b, c] = 1"),
    ("x[$$$] = 1", "x[a] = 1"),
    ("f'{a}b'", 'f"{a}" "b"'),
    ("f'{a:>{w}}'", 'f"{a:>{w}}"'),
    ("rf'\\d{a}'", "f'\\\\d{a}'"),
    ("with a as b, c as d:", "with (a as b, c as d):\n  pass"),
    ("a, b = c", "(a, b) = c"),
    ("return a, b", "return (a, b)"),
    ("if x:", "if (x):\n  y\nelse:\n  z"),
    ("if x: y", "if x:\n  y"),
    ("for $I in $_: $$$", "for i, j in range(3):\n  a\n  b; c"),
    ("match x:", "match (x):\n  case 1: pass"),
    ("try:", "try:\n  a\nexcept B: pass"),
    ("try:", "try:\n  a\nfinally: pass"),
    ("def f(self, $$$):", "@d\ndef f(self, a, /, *b, c=1, **d): pass"),
    ("def f($$$) -> $R:", "def f(a: int) -> dict[str, int]: pass"),
    ("class A($$$):", "class A(B, metaclass=C):\n  pass"),
    ("from a import $$$", "from a import (b, c as d)"),
    ("import $_", "import numpy"),
    ("$X = $X", "a.b = a . b"),
    ("x = f($$$, $A, $$$, $A)", "x = f(1, 2, g(3), 4, g(3))"),
    ("x = f($$$)", "x = f()"),
    ("x = [$A, $$$B]", "x = [1]"),
    ("x = '$HOME'", 'x = "$HOME"'),
    ("x = {$K: $V}", "x = {1: 2}"),
    ("assert $_, 'no'", "assert a == b, \\\n  'no'"),
    ("hidden, $_ = layer($$$)", "(hidden, top) = layer(\n  a,\n  b=1)"),
]
DIFFERENT = [
    ("x = 1.0", "x = 1"),
    ("x = True", "x = 1"),
    ("x = b'a'", "x = 'a'"),
    ("x = b''", "x = ''"),
    ("f'{a!r}'", "f'{a}'"),
    ("f'{a = }'", "f'{a=}'"),
    ("a + (b + c)", "a + b + c"),
    ("a + b", "b + a"),
    ("not a in b", "a not in b"),
    ("a: int = 1", "a = 1"),
    ("x = y", "self.x = y"),
    ("f(a)", "f(k=a)"),
    ("f($X)", "f(*a)"),
    ("f($X)", "f(k=a)"),
    ("x[a]", "x[a,]"),
    ("if x: y", "if x:\n  y\nelse: z"),
    ("def f($$$):", "async def f(a): pass"),
    ("def f(a):", "def f(a: int): pass"),
    ("@a\ndef f():", "@b\ndef f(): pass"),
    ("class A:", "class A(B): pass"),
    ("$X = $X", "a.b = a.c"),
    ("x = f($$$, $A, $$$, $A)", "x = f(1, 2)"),
    ("while x:", "if x: pass"),
    ("x = y = 1", "x = 1"),
    ("import a.b", "import a"),
    ("from .a import b", "from ..a import b"),
    ("f(a, b)", "f(a)"),
    ("x = a if b else c", "x = a if c else b"),
    ("x = {a, b}", "x = [a, b]"),
    ("x = (a for a in b)", "x = [a for a in b]"),
    ("raise A from b", "raise A"),
]


def _node(code: str) -> cst.CSTNode:
    node = cst.parse_module(code + "\n").body[0]
    return node.body[0] if isinstance(node, cst.SimpleStatementLine) else node


@pytest.mark.parametrize(("pattern", "code"), EQUAL)
def test_layout_does_not_count(pattern: str, code: str) -> None:
    """Code that means the same by structure fits, whatever way it is laid out."""
    assert match(parse_pattern(pattern), _node(code)) is not None


@pytest.mark.parametrize(("pattern", "code"), DIFFERENT)
def test_structure_counts(pattern: str, code: str) -> None:
    """Code of another structure never fits, however like it reads."""
    assert match(parse_pattern(pattern), _node(code)) is None


def test_bindings_name_what_the_holes_stand_for() -> None:
    """A hole is bound to its code, a run to all of its elements, an anonymous one to nothing."""
    found = match(parse_pattern("$T = f($$$ARGS, $_)"), _node("a.b = f(1, k, c)"))
    assert found is not None
    render = cst.Module([]).code_for_node
    assert sorted(found) == ["ARGS", "T"]
    assert render(found["T"]) == "a.b"  # type: ignore[arg-type]
    assert [render(n.value) for n in found["ARGS"]] == ["1", "k"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("a; b", "it holds 2 statements; an anchor is one"),
        ("a\nb", "it holds 2 statements; an anchor is one"),
        ("$$$", "`$$$` alone would be any statements; an anchor is one"),
        ("x = = 1", "it is not a Python statement, nor the header of one"),
        ("if x", "it is not a Python statement, nor the header of one"),
    ],
)
def test_what_is_no_pattern(text: str, reason: str) -> None:
    """A text that is not one statement or header is refused with the reason."""
    with pytest.raises(PatternError) as caught:
        parse_pattern(text)
    assert str(caught.value) == reason


@pytest.mark.parametrize("text", ["else:", "elif x:", "except E as e:", "finally:", "case [1]:"])
def test_parts_of_statements_are_headers_too(text: str) -> None:
    """Headers of parts can be named, and are known to be no statements."""
    pattern = parse_pattern(text)
    assert pattern.is_header
    assert not pattern.is_statement


def test_same_code_ignores_layout_only() -> None:
    """Plain code is compared by the rules of patterns."""
    assert same_code(_node("x = (1)"), _node("x=1"))
    assert not same_code(_node("x = 1"), _node("x = 2"))
