"""Which names are bound at a place, told by every way that leads there."""

from __future__ import annotations

import ast

import pytest

from orchestrator.patching.flow import State, bound_at

CASES: list[tuple[str, str, State]] = [
    ("straight", "a = 1\nHERE", {"a": True}),
    ("later", "HERE\na = 1", {}),
    ("branch", "if x:\n    a = 1\nHERE", {"a": False}),
    ("both branches", "if x:\n    a = 1\nelse:\n    a = 2\nHERE", {"a": True}),
    ("branch that leaves", "if x:\n    return\nelse:\n    a = 2\nHERE", {"a": True}),
    ("inside a branch", "if x:\n    a = 1\n    HERE\nelse:\n    b = 1", {"a": True}),
    ("walrus", "if (a := x):\n    pass\nHERE", {"a": True}),
    ("comprehension", "a = [b for b in x if (c := b)]\nHERE", {"a": True, "c": True}),
    ("for", "for i in x:\n    a = 1\nHERE", {"i": False, "a": False}),
    ("in for", "for i in x:\n    HERE\n    a = 1", {"i": True, "a": False}),
    ("for else", "for i in x:\n    break\nelse:\n    a = 1\nHERE", {"i": False, "a": False}),
    ("while true", "while True:\n    a = 1\n    if a:\n        break\nHERE", {"a": True}),
    ("endless", "while True:\n    a = 1\nHERE", None),
    ("while", "while x:\n    a = 1\n    HERE", {"a": True}),
    ("with", "with x as (a, b):\n    c = 1\nHERE", {"a": True, "b": True, "c": True}),
    ("with raising", "with x:\n    a = 1\n    raise a\nHERE", {"a": False}),
    ("try", "try:\n    a = 1\nexcept E as e:\n    b = 1\nHERE", {"a": False, "b": False}),
    ("try all leave", "try:\n    a = 1\nexcept E:\n    return\nHERE", {"a": True}),
    ("in handler", "try:\n    a = 1\nexcept E as e:\n    HERE", {"a": False, "e": True}),
    (
        "try else",
        "try:\n    a = 1\nexcept E:\n    b = 2\nelse:\n    b = 1\nHERE",
        {"a": False, "b": True},
    ),
    ("in finally", "try:\n    a = 1\nfinally:\n    HERE", {"a": False}),
    ("after finally", "try:\n    a = 1\nfinally:\n    b = 1\nHERE", {"a": True, "b": True}),
    ("finally after return", "try:\n    return\nfinally:\n    b = 1\nHERE", None),
    ("delete", "a = 1\ndel a\nHERE", {}),
    (
        "imports",
        "import a.b, c as d\nfrom e import f as g, h\nHERE",
        {"a": True, "d": True, "g": True, "h": True},
    ),
    ("definitions", "def f(): z = 1\nclass K:\n    z = 1\nHERE", {"f": True, "K": True}),
    ("annotation alone", "a: int\nb: int = 1\nHERE", {"b": True}),
    ("augmented", "a += 1\nHERE", {"a": True}),
    ("starred", "a, *b = x\nHERE", {"a": True, "b": True}),
    (
        "match",
        "match x:\n    case [a, *b]:\n        c = 1\nHERE",
        {"a": False, "b": False, "c": False},
    ),
    (
        "match all",
        "match x:\n    case {'k': a, **r}:\n        b = 1\n    case _:\n        return\nHERE",
        {"a": True, "r": True, "b": True},
    ),
    (
        "match bound",
        "match x:\n    case (1 as a) | (2 as a):\n        b = 1\n    case a:\n        b = 2\nHERE",
        {"a": True, "b": True},
    ),
    ("after return", "return\nHERE", None),
    ("after raise", "raise x\nHERE", None),
    ("after continue", "for i in x:\n    continue\n    HERE", None),
    ("lambda", "a = lambda b: (c for c in b)\nHERE", {"a": True}),
    ("attribute", "x.a = 1\nx[b] = 2\nHERE", {}),
]


def _state(body: str, side: str = "before") -> State:
    lines = "".join(f"    {line}\n" for line in body.replace("HERE", "HERE()").splitlines())
    function = ast.parse(f"async def f():\n{lines}").body[0]
    here = next(
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Expr) and ast.unparse(node) == "HERE()"
    )
    return bound_at(function, here, side)


@pytest.mark.parametrize(("body", "bound"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_names_at_a_place(body: str, bound: State) -> None:
    """True is bound on every way, False on some; no state where no way leads."""
    assert _state(body) == bound


def test_parameters_are_bound() -> None:
    """Parameters of every kind are there from the start."""
    function = ast.parse("def f(a, /, b, *c, d=1, **e):\n    pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert bound_at(function, function.body[0], "before") == dict.fromkeys("abcde", True)


def test_behind_a_compound_statement() -> None:
    """After a statement counts what its own body may have bound."""
    module = ast.parse("if x:\n    a = 1\nb = 2\n")
    assert bound_at(module, module.body[0], "after") == {"a": False}
