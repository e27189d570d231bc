"""Which names are bound at a place, told by every way that leads there."""

from __future__ import annotations

import ast

import pytest

from orchestrator.patching.scope.flow import State, bound_at

CASES: list[tuple[str, str, State]] = [
    ("straight", "a = 1\nHERE", {"a": True}),
    ("later", "HERE\na = 1", {}),
    ("branch", "if x:\n    a = 1\nHERE", {"a": False}),
    ("both branches", "if x:\n    a = 1\nelse:\n    a = 2\nHERE", {"a": True}),
    ("branch that leaves", "if x:\n    return\nelse:\n    a = 2\nHERE", {"a": True}),
    ("inside a branch", "if x:\n    a = 1\n    HERE\nelse:\n    b = 1", {"a": True}),
    ("walrus", "if (a := x):\n    pass\nHERE", {"a": True}),
    ("comprehension", "a = [b for b in x if (c := b)]\nHERE", {"a": True, "c": False}),
    ("walrus in and", "if x and (a := y):\n    HERE", {"a": True}),
    ("past walrus in and", "if x and (a := y):\n    pass\nHERE", {"a": False}),
    ("else of walrus in or", "if x or (a := y):\n    pass\nelse:\n    HERE", {"a": True}),
    ("walrus in or", "if x or (a := y):\n    HERE", {"a": False}),
    ("walrus in not", "if not (x or (a := y)):\n    HERE", {"a": True}),
    ("nested walrus", "if (a := x and (b := y)):\n    HERE", {"a": True, "b": True}),
    ("walrus in a value", "a = x or (b := y)\nHERE", {"a": True, "b": False}),
    ("walrus in a choice", "a = (b := x) if (c := y) else (d := z)\nHERE",
     {"a": True, "b": False, "c": True, "d": False}),
    ("walrus in a chain", "a = x < (b := y) < (c := z)\nHERE",
     {"a": True, "b": True, "c": False}),
    ("walrus in a true chain", "if x < (a := y) < (b := z):\n    HERE", {"a": True, "b": True}),
    ("walrus in an assert", "assert (a := x), (b := y)\nHERE", {"a": False, "b": False}),
    ("walrus in an iterable", "for i in (a := x):\n    pass\nHERE", {"i": False, "a": True}),
    ("walrus in a default", "def f(x=(a := y)): z = 1\nHERE", {"f": True, "a": True}),
    ("walrus in a decorator", "@(a := x)\nclass K(b := y): z = 1\nHERE",
     {"K": True, "a": True, "b": True}),
    ("walrus in a lambda", "a = lambda x=(b := y): (c := x)\nHERE", {"a": True, "b": True}),
    ("walrus in del", "a = 1\ndel a, x[(b := 1)]\nHERE", {"b": True}),
    ("behind while", "while (a := x):\n    b = 1\nHERE", {"a": True, "b": False}),
    ("walrus in a guard", "match x:\n    case [a] if (b := a):\n        HERE",
     {"a": True, "b": True}),
    ("next case", "match x:\n    case [a] if y and (b := a):\n        pass\n    case c:\n"
     "        HERE", {"a": False, "b": False, "c": True}),
    ("walrus in except", "try:\n    x()\nexcept (a := E):\n    HERE", {"a": False}),
    ("deleted each turn", "a = 1\nfor i in x:\n    HERE\n    del a", {"i": True, "a": False}),
    ("handler's name of before", "e = 1\nfor i in x:\n    HERE\n    try:\n        pass\n"
     "    except E as e:\n        pass", {"i": True, "e": False}),
    ("suppress", "with contextlib.suppress(E):\n    a = 1\nHERE", {"a": False}),
    ("suppress as a name", "with x, suppress(E) as s:\n    a = 1\nHERE",
     {"s": True, "a": False}),
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
    ("finally that takes away", "a = 1\ntry:\n    b = 1\nfinally:\n    del a\nHERE", {"b": True}),
    ("finally on the way out", "while True:\n    try:\n        break\n    finally:\n        a = 1\n"
     "HERE", {"a": True}),
    ("taken away on the way out", "a = b = 1\nwhile True:\n    try:\n        break\n"
     "    finally:\n        del a\nHERE", {"b": True}),
    ("out of a handler", "e = 1\nwhile True:\n    try:\n        x()\n    except E as e:\n"
     "        break\nHERE", {}),
    ("finally behind a handler", "e = 1\ntry:\n    x()\nexcept E as e:\n    a = 1\n    raise\n"
     "finally:\n    HERE", {"e": False, "a": False}),
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
]  # fmt: skip


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


def test_strictly_any_manager_may_swallow() -> None:
    """What is read without a `try` counts only where no `__exit__` could hide that it is not."""
    source = "def f():\n  b = 1\n  with x as a, y as (g, h):\n    c = 1\n  d = 1"
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    place = function.body[-1]
    assert bound_at(function, place, "before") == dict.fromkeys("abcgh", True)
    assert bound_at(function, place, "before", strict=True) == {
        "a": True, "b": True, "c": False, "g": False, "h": False,
    }  # fmt: skip


def test_parameters_are_bound() -> None:
    """Parameters of every kind are there from the start."""
    function = ast.parse("def f(a, /, b, *c, d=1, **e):\n    pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert bound_at(function, function.body[0], "before") == dict.fromkeys("abcde", True)


def test_behind_a_compound_statement() -> None:
    """After a statement counts what its own body may have bound."""
    module = ast.parse("if x:\n    a = 1\nb = 2\n")
    assert bound_at(module, module.body[0], "after") == {"a": False}
