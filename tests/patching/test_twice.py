"""What was put into a file is not put in once more, wherever it stands and whatever it is."""

from __future__ import annotations

from itertools import product

import pytest

from orchestrator.errors import PatchError
from orchestrator.model.patch import Insert, Replace
from orchestrator.patching.engine import edit_file
from tests.patching.making import make_anchor, make_wanted

# Each has the anchor's statement once, alone, among others, in a suite, and at either end.
SOURCES = (
    "def f(x):\n    y = g(x)\n    return y\n",
    'def f(x):\n    """D."""\n    a = 1; y = g(x); b = 2\n    if b: return y\n',
    "def f(x):\n    if x: y = g(x)\n    else: y = 1\n    raise E\n",
    "def f(x):\n\tfor i in x:\n\t\ty = g(x)  # c\n\treturn y",
    "def f(x): y = g(x); return y\n",
    "def f(x):\r\n    global q\r\n    y = g(x)\r\n",
)
INSERTS = ("log(y)", "log(1)\nlog(2)", "a = 1; b = 2", "while x:\n    log(x)", "# c\nimport z")
PLACES = (("after", "y = g(x)"), ("before", "y = g(x)"), ("start", None), ("end", None),
          ("return", None), ("raise", None))  # fmt: skip
REPLACEMENTS = (
    "y = g($A)\nlog(y)", "log($A)\ny = g($A)", "y = h($A)\nlog(y)", "y = g($A + 1)",
    "if $A:\n    y = g($A)", "try:\n    y = g($A)\nexcept E:\n    pass\nlog()",
    "$A.pre(); y = g($A); $A.post()", "x = 1\ny = 2",
)  # fmt: skip


def put_in(data: bytes, position: str, code: str | None, action: Insert | Replace) -> bytes | str:
    """The source with the edit in it, or the state of the error."""
    wanted = make_wanted(make_anchor(position, code, "f"), action)
    try:
        return edit_file(data, [wanted]).data
    except PatchError as error:
        return error.state


@pytest.mark.parametrize(("position", "code"), PLACES)
def test_inserts(position: str, code: str | None) -> None:
    """A second one of the same is refused, and says so."""
    twice = {}
    for source, new in product(SOURCES, INSERTS):
        once = put_in(source.encode(), position, code, Insert(new))
        if isinstance(once, bytes):  # else there is no such place, or no room for lines
            twice[once] = put_in(once, position, code, Insert(new))
    assert len(twice) >= len(INSERTS)
    assert set(twice.values()) == {"already there"}, twice


def test_replacements() -> None:
    """Whether the anchor still fits, inside of the new code or beside it, or not any more."""
    twice = {}
    for source, new in product(SOURCES, REPLACEMENTS):
        once = put_in(source.encode(), "replace", "y = g($A)", Replace(new))
        if isinstance(once, bytes):
            twice[once] = put_in(once, "replace", "y = g($A)", Replace(new))
    assert len(twice) >= 3 * len(REPLACEMENTS)
    assert set(twice.values()) == {"already there"}, twice
