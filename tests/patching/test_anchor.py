"""Places are found by scope, enclosing statements and number, or not at all."""

from __future__ import annotations

import pytest

from orchestrator.errors import PatchError
from orchestrator.patching.finding.places import find_places
from orchestrator.patching.source import read_source
from tests.patching.making import FILE, make_anchor

BRANCHES = b"""
def f(x):
    if x:
        y = 1
    elif x is None:
        y = 1
    elif x == 2:
        y = 1
    else:
        y = 1
    for z in x:
        y = 1
    else:
        y = 1
    try:
        y = 1
    except (ValueError, KeyError) as e:
        y = 1
    else:
        y = 1
    finally:
        y = 1
    match x:
        case [1, *_]:
            y = 1
        case _ if x > 1:
            y = 1
    with x as w:
        while True:
            y = 1
"""


def _lines(data: bytes, *within: str, scope: str | None = "f") -> list[int]:
    source = read_source(data, FILE)
    anchor = make_anchor("after", "y = 1", scope, within=within, occurrence=0)
    return [source.line_of(p.statement.node) for p in find_places(source, anchor)]


STARS = b"""\
def f(x):
    try:
        y = 1
    except* ValueError:
        y = 1
    finally:
        y = 1
"""


@pytest.mark.parametrize(
    ("within", "lines"),
    [
        (("try:",), [3]),
        (("except* $_:",), [5]),
        (("try:", "finally:"), [7]),
    ],
)
def test_a_try_with_starred_handlers(within: tuple[str, ...], lines: list[int]) -> None:
    """Its headers are those of any other; only its handlers are told apart."""
    assert _lines(STARS, *within) == lines


@pytest.mark.parametrize(
    ("within", "lines"),
    [
        (("if x:",), [4]),
        (("elif x is None:",), [6]),
        (("elif $_:",), [6, 8]),
        (("if x:", "elif x is None:"), [6]),
        (("if x:", "elif x is None:", "elif x == 2:"), [8]),
        (("for $_ in x:",), [12]),
        (("for $_ in x:", "else:"), [14]),
        (("else:",), [10, 14, 20]),
        (("try:",), [16]),
        (("except (ValueError, KeyError) as e:",), [18]),
        (("try:", "else:"), [20]),
        (("finally:",), [22]),
        (("match x:",), [25, 27]),
        (("match x:", "case _ if $_:"), [27]),
        (("case [1, *_]:",), [25]),
        (("with $_ as w:", "while True:"), [30]),
        (("while True:",), [30]),
    ],
)
def test_within_names_a_branch(within: tuple[str, ...], lines: list[int]) -> None:
    """A header means its own branch; with the next header, another branch of that statement."""
    assert _lines(BRANCHES, *within) == lines


def test_without_a_scope_headers_of_functions_count() -> None:
    """Where the whole file is searched, a function can be the enclosing statement."""
    data = b"def f(x):\n    y = 1\n\n\ndef g(x):\n    if x:\n        y = 1\n"
    assert _lines(data, "def g($$$):", scope=None) == [7]
    assert _lines(data, "def g($$$):", "if x:", scope=None) == [7]


def test_a_part_of_a_statement_is_no_place() -> None:
    """Nothing can stand before `else`, and the error says how to get near."""
    source = read_source(BRANCHES, FILE)
    with pytest.raises(PatchError) as caught:
        find_places(source, make_anchor("before", "else:", "f"))
    error = caught.value
    assert error.state == "refused"
    assert error.message == "`else:` is a part of a statement: nothing can stand before it"
    assert error.hints == (
        'anchor on a statement inside it, with `within: "else:"` where that is not unique',
    )


def test_a_bad_anchor_is_an_error_of_its_text() -> None:
    """Text that is not one statement is refused before anything is sought."""
    with pytest.raises(PatchError) as caught:
        find_places(read_source(b"a\n", FILE), make_anchor("before", "a; b"))
    assert caught.value.state == "parse"
    assert caught.value.message == (
        "`a; b` cannot be an anchor: it holds 2 statements; an anchor is one"
    )


def test_names_as_python_writes_them() -> None:
    """`<locals>` of a `__qualname__` may stand in a scope."""
    source = read_source(b"def f():\n    def g():\n        y = 1\n", FILE)
    places = find_places(source, make_anchor("after", "y = 1", "f.<locals>.g"))
    assert [p.scope for p in places] == ["f.g"]
