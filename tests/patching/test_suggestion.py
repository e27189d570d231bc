"""The anchor that is written for a line is what a user would write, and fits that line."""

from __future__ import annotations

import pytest

from orchestrator.diagnostics import render
from orchestrator.errors import PatchError
from orchestrator.patching.finding.suggestion import suggest
from orchestrator.spec.code import check_anchor
from tests.patching.making import FILE

SOURCE = b"""import functools
class K:  # hi
    def f(self, a, b):
        for i in range(3):  # c
            a += i
        # a comment
        for i, video in enumerate(
            a,  # inner
        ):  # type: ignore

            b = video
        @functools.lru_cache(  # d
            maxsize=None
        )
        # between
        @functools.wraps(self.f)
        def g(x,
              y):
            return x
        if (a and
                b): return g
        with open("a") as f, \\
             open("b") as h:  # two
            pass
        try:  # t
            a = 1
        except ValueError:
            b = "pass"
        while a: a = "pass"  # pass
        match (a,
               b):  # m
            case 1:
                return b
async def k(
    a
):  # k
    async for q in a:  # q
        for i in range(3):  # 1
            pass
        for i in range(3):  # 2
            pass
"""
LOOP = "for i, video in enumerate(\n    a,  # inner\n):"
INNER = "def g(x,\n      y):"


@pytest.mark.parametrize(
    ("lines", "scope", "code", "occurrence"),
    [
        ((2,), None, "class K:", None),
        ((3,), "K", "def f(self, a, b):", None),
        ((4,), "K.f", "for i in range(3):", None),
        ((7, 8, 9), "K.f", LOOP, None),
        ((12, 13, 14, 15, 16, 17, 18), "K.f", INNER, None),
        ((20,), "K.f", "if (a and\n        b):", None),
        ((21,), "K.f", "return g", None),
        ((22, 23), "K.f", 'with open("a") as f, \\\n             open("b") as h:', None),
        ((25,), "K.f", "try:", None),
        ((30, 31), "K.f", "match (a,\n       b):", None),
        ((34, 35, 36), None, "async def k(\n    a\n):", None),
        ((37,), "k", "async for q in a:", None),
        ((40,), "k", "for i in range(3):", 2),
    ],
)
def test_headers(lines: tuple[int, ...], scope: str, code: str, occurrence: int | None) -> None:
    """A header is written over its lines, without comments behind it, whichever line is named."""
    for line in lines:
        anchor = suggest(SOURCE, FILE, line, []).anchor
        assert (anchor.position, anchor.scope, anchor.code) == ("before", scope, code)
        assert anchor.occurrence == occurrence
        assert check_anchor(code) == code


@pytest.mark.parametrize(("line", "following"), [(6, 7), (10, 11), (27, 28), (32, 33)])
def test_lines_without_a_statement(line: int, following: int) -> None:
    """A comment, an empty line, and a part of a statement are no place; the next one is named."""
    with pytest.raises(PatchError) as caught:
        suggest(SOURCE, FILE, line, [])
    assert caught.value.message == f"no statement stands in line {line} of `{FILE}`"
    assert caught.value.hints == (f"the next one begins in line {following}",)


LONG = f"[{', '.join(map(str, range(4000)))}]"
MANY = f"""def f(x):
    a = {LONG}
    a = {LONG[:-1]}, 0]
    {LONG}
    print(a)
    for i in {LONG}:
        return f({LONG})
"""


@pytest.mark.parametrize(
    ("line", "code", "occurrence"), [(2, "a = $_", 1), (3, "a = $_", 2), (7, "return f($$$)", None)]
)
def test_code_that_is_too_long_for_a_patch(line: int, code: str, occurrence: int | None) -> None:
    """The rest of the statement tells it from others, by its number where that is needed."""
    anchor = suggest(MANY.encode(), FILE, line, []).anchor
    assert (anchor.code, anchor.occurrence) == (code, occurrence)
    assert check_anchor(code) == code


@pytest.mark.parametrize("line", [4, 6])
def test_code_that_is_nothing_but_too_long(line: int) -> None:
    """It says why there is no anchor, and where there may be one."""
    with pytest.raises(PatchError) as caught:
        suggest(MANY.encode(), FILE, line, [])
    assert render(caught.value) == (
        f"error: the code in line {line} of `{FILE}` has more than 10,000 characters, too many for "
        f"an anchor\n ::: {FILE}\nhint: name the line of a statement beside it"
    )
