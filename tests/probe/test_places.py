"""Patches on sources that evaluate in odd ways: placed by the engine, run by a real interpreter."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from orchestrator.model.patch import Anchor, Capture, Edit, Expectation, Patch, Probe
from orchestrator.patching.engine import edit_file
from orchestrator.patching.wanted import Wanted
from orchestrator.planning.table import make_sites
from tests.probe.workshop import Finished, Workshop

FILE = "sglang/srt/model.py"

# Each: the module, where the probe goes, its expressions, the script, and the records' values.
Trap = tuple[str, dict[str, Any], list[str], str, list[list[Any]]]
TRAPS: dict[str, Trap] = {
    "comprehension-over-locals": (
        "bs = 100\ndef f(y, bs):\n    z = y\n    return z\n",
        {"scope": "f", "position": "after", "code": "z = y"},
        ["[x for x in y if x > bs]", "sum(x for x in y if x > bs)", "(lambda: bs)()"],
        "model.f([1, 2, 3], 2)",
        [["[3]", 3, 2]],
    ),
    "private-name": (
        "class A:\n    def __init__(self):\n        self.__p = 7\n    def f(self):\n"
        "        __q = 8\n        return self.__p + __q\n",
        {"scope": "A.f", "position": "return", "code": None},
        ["self.__p", "__q", "[self.__p for _ in [1]]"],
        "model.A().f()",
        [[7, 8, "[7]"]],
    ),
    "class-level": (
        "class A:\n    x = 1\n    y = [x for _ in range(2)] if False else x\n",
        {"scope": "A", "position": "after", "code": "x = 1"},
        ["x", "[x for _ in range(2)]"],
        "",
        [[1, "[1, 1]"]],
    ),
    "module-level": (
        "x = 1\ny = x\n",
        {"scope": None, "position": "after", "code": "y = x"},
        ["x", "[y for _ in range(2)]"],
        "print(model.x, model.y)",
        [[1, "[1, 1]"]],
    ),
    "locals-kept-by-the-target": (
        "def f(x):\n    kw = locals()\n    y = 2\n    return dict(kw)\n",
        {"scope": "f", "position": "after", "code": "y = 2"},
        ["x", "y"],
        "print(sorted(model.f(1)))",
        [[1, 2]],
    ),
    "generator": (
        "def f(xs):\n    for x in xs:\n        y = x\n        yield y\n",
        {"scope": "f", "position": "after", "code": "y = x"},
        ["y"],
        "print(list(model.f([1, 2])))",
        [[1], [2]],
    ),
    "generator-value": (
        "def f(xs):\n    got = yield 1\n    return got\ndef g():\n    return (yield from f([]))\n",
        {"scope": "f", "position": "return", "code": None, "takes_value": True},
        ["value", "xs"],
        "it = model.g(); next(it)\ntry: it.send(5)\nexcept StopIteration as end: print(end.value)",
        [[5, "[]"]],
    ),
    "coroutine": (
        "async def g(): return 3\nasync def f():\n    x = await g()\n    return x\n",
        {"scope": "f", "position": "wrap", "code": "await g()", "takes_value": True},
        ["value"],
        "import asyncio\nprint(asyncio.run(model.f()))",
        [[3]],
    ),
    "deleted-name": (
        "def f(x):\n    if x:\n        del x\n    y = 1\n    return y\n",
        {"scope": "f", "position": "after", "code": "y = 1"},
        ["x", "y"],
        "model.f(0); model.f(1)",
        [[0, 1], [None, 1]],
    ),
    "evaluated-once": (
        "seen = []\ndef g(x):\n    seen.append(x)\n    return x * 2\ndef f(x):\n"
        "    return [g(x), g(x + 1)]\n",
        {"scope": "f", "position": "wrap", "code": "g(x)", "takes_value": True},
        ["value", "x", "len(seen)"],
        "print(model.f(1), model.seen)",
        [[2, 1, 1]],
    ),
    "walrus-inside": (
        "def f(x):\n    if (y := x + 1) > 1:\n        return y\n",
        {"scope": "f", "position": "wrap", "code": "(y := x + 1)", "takes_value": True},
        ["value"],
        "print(model.f(1))",
        [[2]],
    ),
    "bound-by-a-guard": (
        "def f(y):\n    match y:\n        case [*a] if (n := len(a)) > 1:\n            z = n\n"
        "            return z\n",
        {"scope": "f", "position": "before", "code": "z = n"},
        ["n", "a"],
        "print(model.f([1, 2]), model.f([]))",
        [[2, "[1, 2]"]],
    ),
    "swallowed-in-a-with": (
        "def f(quiet):\n    kw = locals()\n    with quiet:\n        x = 1 / 0\n    y = 1\n"
        "    return len(kw)\n",
        {"scope": "f", "position": "after", "code": "y = 1"},
        ["y", "x"],
        "import contextlib\nprint(model.f(contextlib.suppress(Exception)))",
        [[1, None]],
    ),
    "bound-by-half-a-condition": (
        "def f(a):\n    kw = locals()\n    if a or (b := 2):\n        y = 1\n"
        "    return sorted(kw)\n",
        {"scope": "f", "position": "after", "code": "y = 1"},
        ["y", "b"],
        "print(model.f(1), model.f(0))",
        [[1, None], [1, None]],
    ),
    "in-a-comprehension": (
        "def f(xs):\n    return [x * 2 for x in xs if x]\n",
        {"scope": "f", "position": "wrap", "code": "x * 2", "takes_value": True},
        ["value"],
        "print(model.f([1, 0, 2]))",
        [[2], [4]],
    ),
    "nothing-returned": (
        "def f(x):\n    if x:\n        return\n    x = 5\n",
        {"scope": "f", "position": "return", "code": None, "takes_value": True},
        ["value", "x"],
        "model.f(1); model.f(0)",
        [[None, 1], [None, 5]],
    ),
    "tuple-returned": (
        "def f(x):\n    return x, *x\n",
        {"scope": "f", "position": "return", "code": None, "takes_value": True},
        ["value[1]"],
        "print(model.f([7]))",
        [[7]],
    ),
    "super-in-the-target": (
        "class A:\n    def f(self): return 1\nclass B(A):\n    def f(self):\n"
        "        return super().f() + 1\n",
        {"scope": "B.f", "position": "wrap", "code": "super().f()", "takes_value": True},
        ["value", "type(self).__name__"],
        "print(model.B().f())",
        [[1, "B"]],
    ),
    "before-what-is-raised": (
        "def f(x):\n    try:\n        raise ValueError(x)\n"
        "    except ValueError:\n        return 2\n",
        {"scope": "f", "position": "raise", "code": None},
        ["x"],
        "print(model.f(1))",
        [[1]],
    ),
}


# Each: the module, the code of the place, the names asked for, the script, and the values of each
# hit; where a name of the function's has none, a global or builtin spelt alike is not taken for it.
UNBOUND: dict[str, tuple[str, str, list[str], str, list[list[Any]]]] = {
    "bound-on-one-way": (
        "bs = 100\ndef f(flag):\n    if flag:\n        bs = 1\n    z = 2\n    return z\n",
        "z = 2",
        ["bs", "[bs for _ in [1]]", "(lambda: bs)()", "bs if flag else 7"],
        "model.f(1); model.f(0)",
        [[1, "[1]", 1, 1], [None, None, None, 7]],
    ),
    "spelt-like-a-builtin": (
        "def f(flag):\n    if flag:\n        max = 1\n    z = 2\n    return z\n",
        "z = 2",
        ["max", "[max for _ in [1]]", "min(3, 4)"],
        "model.f(1); model.f(0)",
        [[1, "[1]", 3], [None, None, 3]],
    ),
    "deleted": (
        "x = 5\ndef f(x):\n    if x:\n        del x\n    z = 2\n    return z\n",
        "z = 2",
        ["x"],
        "model.f(1); model.f(0)",
        [[None], [0]],
    ),
    "the-variable-of-an-empty-loop": (
        "i = 9\ndef f(xs):\n    for i in xs:\n        pass\n    z = 2\n    return z\n",
        "z = 2",
        ["i"],
        "model.f([1, 2]); model.f([])",
        [[2], [None]],
    ),
    "free-and-not-bound-yet": (
        "x = 5\ndef f():\n    def g():\n        z = 1\n        return z, lambda: x\n    g()\n"
        "    x = 7\n    return g()[0]\n",
        "z = 1",
        ["x"],
        "print(model.f())",
        [[None], [7]],
    ),
    "a-function-that-uses-its-names": (
        "x = 9\ndef f(a):\n    if a:\n        x = a\n    kw = dict(locals())\n    z = 1\n"
        "    return len(kw)\n",
        "z = 1",
        ["x", "z"],
        "print(model.f(3), model.f(0))",
        [[None, 1], [None, 1]],
    ),
    "a-class-falls-back-to-its-module": (
        "x = 1\nclass K:\n    if False:\n        x = 2\n    z = 3\n",
        "z = 3",
        ["x"],
        "",
        [[1]],
    ),
}


def place(shop: Workshop, source: str, where: dict[str, Any], codes: list[str]) -> None:
    """Put one probe into the module and its table beside it."""
    takes_value = where.pop("takes_value", False)
    anchor = Anchor(FILE, **where)
    probe = Probe(tuple(Capture(c, c) for c in codes), takes_value=takes_value)
    edit = Edit((anchor,), probe, "p.1")
    patch = Patch("p", "A trap.", "sglang", "", (edit,))
    edited = edit_file(source.encode(), [Wanted(patch, "sglang", FILE, edit, anchor)])
    shop.write(FILE, edited.data.decode())
    shop.put_sites(make_sites([patch], edited.sites))


def run(shop: Workshop, source: str, where: dict[str, Any], codes: list[str], do: str) -> Finished:
    """The same script on the plain and on the patched module prints the same."""
    shop.write(FILE, source)
    plain = shop.run(do)
    place(shop, source, dict(where), codes)
    done = shop.run(do)
    assert (plain.code, done.code) == (0, 0), (plain.stderr, done.stderr)
    assert done.stdout == plain.stdout
    return done


def text_of(value: Any) -> Any:
    """A value as the traps write it: containers by their text."""
    return value["text"] if isinstance(value, dict) else value


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap(shop: Workshop, name: str) -> None:
    """The patched module does what the plain one does, and the record has the true values."""
    source, where, codes, do, expected = TRAPS[name]
    done = run(shop, source, where, codes, do)
    found = [[text_of(r.values.get(code)) for code in codes] for r in done.of("hit")]
    assert found == expected


@pytest.mark.parametrize("name", UNBOUND)
def test_a_name_without_a_value(shop: Workshop, name: str) -> None:
    """It is an error entry, never another thing of that name."""
    source, code, names, do, expected = UNBOUND[name]
    scope = {"free-and-not-bound-yet": "f.g", "a-class-falls-back-to-its-module": "K"}
    where = {"scope": scope.get(name, "f"), "position": "after", "code": code}
    place(shop, source, where, names)
    done = shop.run(do)
    assert done.code == 0, done.stderr
    hits = done.of("hit")
    assert [[text_of(r.values.get(n)) for n in names] for r in hits] == expected
    for record in hits:
        lost = [n for n in names if n not in record.values]
        assert sorted(record.errors) == sorted(lost)
        assert all(text.startswith("NameError: ") for text in record.errors.values())


def test_a_value_may_be_expected(shop: Workshop) -> None:
    """Keys, conditions and expectations know `value` too."""
    source = "def f(x):\n    return x * 2\n"
    anchor = Anchor(FILE, "f", "return", None)
    probe = Probe(
        (Capture("value", "value"),),
        once_per=(Capture("value", "value"),),
        when=Capture("when", "value > 2"),
        emit_if=Capture("emit_if", "value < 9"),
        expect=(Expectation("even", "value % 4 == 0", "x > 0"),),
        takes_value=True,
    )
    edit = Edit((anchor,), probe, "p.1")
    patch = Patch("p", "A test.", "sglang", "", (edit,))
    edited = edit_file(source.encode(), [Wanted(patch, "sglang", FILE, edit, anchor)])
    shop.write(FILE, edited.data.decode())
    shop.put_sites(make_sites([patch], edited.sites))
    done = shop.run("for x in (1, 2, 2, 3, 7): model.f(x)")
    assert [(r.values["value"], r.expect) for r in done.of("hit")] == [
        (4, {"even": True}),
        (6, {"even": False}),
    ]


def test_a_spent_value_still_passes(shop: Workshop) -> None:
    """Off, spent, over or without a table, the value is the same object."""
    source = "def f(x):\n    return x\n"
    where = {"scope": "f", "position": "return", "code": None, "takes_value": True}
    place(shop, source, where, ["value"])
    script = textwrap.dedent(
        """
        thing = object()
        put(site={"limit": 1})
        print(model.f(thing) is thing, model.f(thing) is thing)
        put(over=True)
        print(model.f(thing) is thing)
        os.remove(TABLE); _sgldbg.next_poll = 0.0
        print(model.f(thing) is thing)
        """
    )
    done = shop.run(script)
    assert done.stdout.split() == ["True"] * 4
    assert len(done.of("hit")) == 1
