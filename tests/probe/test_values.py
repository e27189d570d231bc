"""What a record shows of values, expectations and requests, however hostile they are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.probe.workshop import Workshop

HOSTILE = """
import collections, datetime, enum
class Evil:
    def __repr__(self): raise SystemExit("repr")
    __str__ = __bool__ = __len__ = __iter__ = __hash__ = __eq__ = __repr__
    def __getattr__(self, name): raise SystemExit("attribute " + name)
class Lying(list):
    def __iter__(self): raise SystemExit("iter")
    def __len__(self): return 10 ** 9
class Text(str):
    def __str__(self): raise SystemExit("str")
    def __getitem__(self, key): raise SystemExit("item")
class Meta(type):
    @property
    def shape(cls): raise SystemExit("shape")
class Odd(metaclass=Meta): pass
class generic: __module__ = "numpy"
class int64(generic):
    __module__ = "numpy"
    def __init__(self, number): self.number = number
    def item(self): return self.number
class longdouble(int64):
    __module__ = "numpy"
    def item(self): return self
    def __str__(self): return "1.25"
class ndarray:
    __module__ = "numpy"; shape = (2, 3); dtype = "int64"
class memmap(ndarray):
    __module__ = "numpy"
    def item(self): raise ValueError("of one element only")
class Meets:
    def way(self): pass
class Mode(enum.IntEnum):
    EXTEND = 1
class Boom(Exception):
    def __str__(self): raise SystemExit("message")
class Array:
    shape = (29, 192); dtype = "f4"
def boom(): raise Boom
def exits(): sys.exit(3)
def deep(): return deep()
nested = []
for _ in range(10000): nested = [nested]
cyclic = {}
cyclic["me"] = cyclic
model.__dict__.update(globals())
"""
CASES: dict[str, Any] = {
    "None": None,
    "True": True,
    "7": 7,
    "2.5": 2.5,
    "float('nan')": "nan",
    "-float('inf')": "-inf",
    "'text'": "text",
    "'t' * 1000": {"t": "str", "text": "t" * 200, "len": 1000},
    "b'bytes'": {"t": "bytes", "text": "b'bytes'"},
    "2 ** 70": {"t": "int", "text": str(2**70)},
    "10 ** 9999": {"t": "int", "text": "int of 33216 bits"},
    "(1, 'a', None)": {"t": "tuple", "text": "(1, 'a', None)"},
    "(1,)": {"t": "tuple", "text": "(1,)"},
    "list(range(100))": {"t": "list", "text": "[0, 1, 2, 3, 4, 5, 6, 7, ... 100 in all]"},
    "{'k': [1.5]}": {"t": "dict", "text": "{'k': [1.5]}"},
    "{3}": {"t": "set", "text": "{3}"},
    "Mode.EXTEND": {"t": "enum", "text": "Mode.EXTEND"},
    "[Mode.EXTEND]": {"t": "list", "text": "[Mode.EXTEND]"},
    "Evil()": {"t": "Evil", "text": "<__main__.Evil>"},
    "[Evil()]": {"t": "list", "text": "[<__main__.Evil>]"},
    "Odd": {"t": "Meta", "text": "<class __main__.Odd>"},
    "int": {"t": "type", "text": "<class builtins.int>"},
    "[Evil, len, boom]": {
        "t": "list",
        "text": "[<class __main__.Evil>, <function builtins.len>, <function __main__.boom>]",
    },
    "[].append": {"t": "builtin_function_or_method", "text": "<function list.append>"},
    "Meets().way": {"t": "method", "text": "<function __main__.Meets.way>"},
    "int64(5)": 5,
    "longdouble(5)": "1.25",
    "(int64(5), [int64(6.5)], longdouble(7))": {"t": "tuple", "text": "(5, [6.5], 1.25)"},
    "[ndarray(), memmap()]": {"t": "list", "text": "[array(2, 3), array(2, 3)]"},
    "datetime.date(2026, 1, 2)": {"t": "date", "text": "2026-01-02"},
    "3 + 4j": {"t": "complex", "text": "(3+4j)"},
    "range(2, 9)": {"t": "range", "text": "range(2, 9, 1)"},
    "slice(None, int64(4))": {"t": "slice", "text": "slice(None, 4, None)"},
    "bytearray(b'ab')": {"t": "bytearray", "text": "bytearray(b'ab')"},
    "[set(), {}, frozenset()]": {"t": "list", "text": "[set(), {}, frozenset()]"},
    "collections.deque([1, 2])": {"t": "deque", "text": "deque[1, 2]"},
    "{'a': 1}.keys()": {"t": "dict_keys", "text": "keys['a']"},
    "{'a': 1}.values()": {"t": "dict_values", "text": "values[1]"},
    "{'a': 1}.items()": {"t": "dict_items", "text": "items[('a', 1)]"},
    "Lying([1, 2])": {"t": "Lying", "text": "[1, 2]"},
    "Text('abc')": {"t": "Text", "text": "'abc'"},
    "nested": {"t": "list", "text": "[[[<builtins.list>]]]"},
    "cyclic": {"t": "dict", "text": "{'me': {'me': {'me': <builtins.dict>}}}"},
    "Array()": {"t": "tensor", "shape": [29, 192], "dtype": "f4", "why": "not a torch tensor"},
    "[i for i in range(x) if i < y]": {"t": "list", "text": "[0]"},
    "(lambda a: a + y)(x)": 3,
    "'\\ud800'": "\\ud800",
}
FAILURES = {
    "boom()": "Boom: (no text)",
    "exits()": "SystemExit: 3",
    "deep()": "RecursionError: maximum recursion depth exceeded",
    "missing": "NameError: name 'missing' is not defined",
    "1 / 0": "ZeroDivisionError: division by zero",
    "x +": "SyntaxError: invalid syntax (<sgldbg>, line 2)",
    "Evil().shape": "SystemExit: attribute shape",
}


def test_every_value_has_a_bounded_text_of_ours(shop: Workshop) -> None:
    """No `__repr__`, `__str__`, `__len__` or property of the server's decides what is written."""
    shop.put(capture=list(CASES)[:64])
    done = shop.run(HOSTILE + "print(model.f(1, 2))")
    assert done.stdout == "1\n"
    (record,) = done.of("hit")
    expected = {**CASES, "'\\ud800'": "?"}
    assert record.values == expected
    assert record.errors == {}


def test_every_failure_is_an_entry_of_its_own(shop: Workshop) -> None:
    """One expression that fails leaves the others whole, and the server never notices."""
    shop.put(
        capture=["x", *FAILURES],
        once_per=["Evil()", "boom()", "{1: Evil()}"],
        expect={
            "broken": {"that": "boom()", "when": None},
            "evil": {"that": "Evil()", "when": None},
            "evil-when": {"that": "x", "when": "Evil()"},
        },
    )
    done = shop.run(HOSTILE + "print(model.f(1, 2))")
    assert (done.code, done.stdout) == (0, "1\n")
    (record,) = done.of("hit")
    assert record.values == {"x": 1}
    evil = dict.fromkeys(("evil", "evil-when"), "SystemExit: repr")
    assert record.errors == {**FAILURES, "broken": "Boom: (no text)", **evil}
    assert record.keys == ("<__main__.Evil>", "error: Boom: (no text)", "{1: <__main__.Evil>}")
    assert record.expect == {}


def test_expectations(shop: Workshop) -> None:
    """True, false, or null where its own `when` does not hold."""
    shop.put(
        expect={
            "small": {"that": "x < 3", "when": None},
            "asked": {"that": "x < 3", "when": "y == 2"},
            "sum": {"that": "all(v > 0 for v in (x, y))", "when": None},
        }
    )
    done = shop.run("model.f(1, 2); model.f(5, 0)")
    assert [r.expect for r in done.of("hit")] == [
        {"small": True, "asked": True, "sum": True},
        {"small": False, "asked": None, "sum": False},
    ]


def test_private_names_are_those_of_the_class(shop: Workshop) -> None:
    """`self.__x` in a capture means what it means in the method."""
    shop.write(
        "sglang/srt/model.py",
        "from sglang import _sgldbg\n"
        "class _Model:\n"
        "    def __init__(self): self.__x = 4\n"
        "    def f(self):\n"
        "        __y = 5; _sgldbg.off('p.1') or _sgldbg.hit('p.1', locals())\n",
    )
    shop.put(capture=["self.__x + __y"], **{"class": "_Model"})
    assert shop.run("model._Model().f()").values("self.__x + __y") == [9]


def test_the_requests_of_the_batch_are_named(shop: Workshop) -> None:
    """Ids come from the frame's `forward_batch` or `batch`; the first four, never an error."""
    script = """
from types import SimpleNamespace as N
model.f(forward_batch=None)
exec(open(model.__file__).read().replace("**more", "forward_batch=None, batch=None"))
f(1, forward_batch=N(rids=["a", "b", 3, "c", "d", "e"]))
f(2, batch=N(reqs=[N(rid="r1"), N(rid="r2" * 100)]))
f(3, batch=7)
f(4, forward_batch=N(batch_size=0), batch=N(reqs=[N(rid="idle")]))
"""
    shop.put()
    done = shop.run(script)
    assert [r.requests for r in done.of("hit")] == [(), ("a", "b", "c"), ("r1", "r2" * 32), ()]
    (skipped,) = done.of("skip")
    assert (skipped.note, skipped.values, skipped.requests) == ("empty batch", {"x": 4}, ("idle",))


def test_a_huge_record_travels_in_parts_and_the_largest_without_values(shop: Workshop) -> None:
    """No line exceeds 4,096 bytes, and no record grows without limit."""
    captures = [f"'{n:02}' + chr(233) * 198" for n in range(40)]
    shop.put(capture=captures)
    done = shop.run("model.f()")
    assert max(len(line) for line in done.stderr.split(b"\n")) < 4096
    assert done.damaged == 0
    (record,) = done.of("hit")
    assert [record.values[c] for c in captures] == [f"{n:02}" + "é" * 198 for n in range(40)]
    shop.put(capture=[c.replace("233", "128512") for c in captures], generation=2)
    (record,) = shop.run("model.f()").of("hit")
    assert record.values == {}
    assert re.fullmatch(r"left out: 9\d{4} bytes of values", record.errors["record"])


@pytest.mark.parametrize("clear", [True, False])
def test_the_dict_of_locals_is_emptied_where_that_is_safe(shop: Workshop, clear: bool) -> None:
    """Up to Python 3.12 it would keep every tensor alive until the frame ends."""
    shop.write(
        "sglang/srt/model.py",
        "import gc, weakref\n"
        "from sglang import _sgldbg\n"
        "class Big: pass\n"
        "def f():\n"
        "    x = Big(); seen = weakref.ref(x)\n"
        "    _sgldbg.off('p.1') or _sgldbg.hit('p.1', locals())\n"
        "    del x\n"
        "    return seen() is None\n",
    )
    shop.put(clear=clear)
    assert shop.run("print(model.f())").stdout == f"{clear}\n"


def test_module_level_code_is_left_alone(shop: Workshop) -> None:
    """There `locals()` is the module itself: nothing is added to it."""
    shop.write(
        "sglang/srt/model.py",
        "from sglang import _sgldbg\nx = 3; _sgldbg.off('p.1') or _sgldbg.hit('p.1', locals())\n",
    )
    shop.put(clear=False, capture=["(new := x + 1)"])
    done = shop.run("print(hasattr(model, 'new'), model.x)")
    assert (done.stdout, done.values("(new := x + 1)")) == ("False 3\n", [4])


def test_nothing_of_the_servers_is_kept_alive(shop: Workshop) -> None:
    """Keys, errors and expressions that do not compile hold no frame and no value."""
    shop.write(
        "sglang/srt/model.py",
        "import weakref\n"
        "from sglang import _sgldbg\n"
        "class Big: pass\n"
        "def f():\n"
        "    x = Big(); _sgldbg.off('p.1') or _sgldbg.hit('p.1', locals())\n"
        "    return weakref.ref(x)\n",
    )
    shop.put(clear=False, capture=["x +", "x", "x.missing"], once_per=["x", "x.missing", "x +"])
    done = shop.run("print(model.f()(), model.f()())")
    assert done.stdout == "None None\n"
    (record,) = done.of("hit")
    assert record.keys == (
        "<sglang.srt.model.Big>",
        "error: AttributeError: 'Big' object has no attribute 'missing'",
        "error: SyntaxError: invalid syntax (<sgldbg>, line 2)",
    )
