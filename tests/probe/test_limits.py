"""Which hits make a record: keys, limits, conditions, ranks, phases."""

from __future__ import annotations

import pytest

from tests.probe.workshop import Workshop

LOOP = "for i in range(50): model.f(i % 5, i)\n"


@pytest.mark.parametrize(
    ("site", "expected"),
    [
        ({}, [i % 5 for i in range(50)]),
        ({"once_per": ["x"]}, [0, 1, 2, 3, 4]),
        ({"once_per": ["x > 1", "x > 3"]}, [0, 2, 4]),
        ({"limit": 3}, [0, 1, 2]),
        ({"limit": 3, "when": "y > 20"}, [1, 2, 3]),
        ({"every": 10}, [0, 0, 0, 0, 0]),
        ({"every": 7, "limit": 4}, [0, 2, 4, 1]),
        ({"rate_per_s": 2}, [0, 1]),
        ({"max_keys": 2, "once_per": ["x"]}, [0, 1]),
        ({"emit_if": "stats.x == 3", "limit": 2}, [3, 3]),
        ({"emit_if": "y > 47"}, [3, 4]),
        ({"when": "x == 9"}, []),
        ({"when": "nope"}, []),
    ],
)
def test_what_is_recorded(shop: Workshop, site: dict[str, object], expected: list[int]) -> None:
    """Each limit lets exactly the hits through that its description names, once each."""
    shop.put(**site)
    done = shop.run(LOOP)
    assert done.values() == expected
    assert done.code == 0
    assert done.damaged == 0
    assert done.records == done.spooled


def test_a_limit_says_so_and_counts_what_it_cut(shop: Workshop) -> None:
    """After the last record stands why there are no more, and at the end how many hits came."""
    shop.put(limit=3, when="y > 3")
    done = shop.run(LOOP)
    assert [r.note for r in done.of("spent")] == [
        "limit of 3 records reached after 7 hits, `when` is false 4",
        "reached 43 more times",
    ]
    assert [r.note for r in done.of("skip")] == ["`when` is false"]
    assert done.of("hit")[0].note == "not counted: `when` is false 4"


def test_keys_that_run_out_say_so(shop: Workshop) -> None:
    """The cap on distinct keys is visible."""
    for most, note in ((4, "4 distinct keys recorded after 4 hits"),
                       (1, "1 distinct key recorded after 1 hit")):  # fmt: skip
        shop.put(once_per=["y"], max_keys=most)
        assert [r.note for r in shop.run(LOOP).of("spent")][:1] == [note]


def test_a_condition_that_raises_is_reported_a_few_times(shop: Workshop) -> None:
    """It stops neither the step nor the log."""
    shop.put(when="1 / 0")
    done = shop.run(LOOP + "print('went on')")
    assert done.stdout == "went on\n"
    assert [r.errors for r in done.of("error")] == [
        {"when": "ZeroDivisionError: division by zero"}
    ] * 3


def test_before_arming_nothing_is_used_up(shop: Workshop) -> None:
    """Phase `start` shows one record per key; the armed phase begins with all its limits whole."""
    shop.put("start", 1, once_per=["x"], limit=2, when="y > 0")
    done = shop.run(LOOP + "put(generation=2, phase='armed')\n" + LOOP)
    assert [(r.phase, r.values["x"]) for r in done.of("hit")] == [
        ("start", 1),
        ("start", 2),
        ("start", 3),
        ("start", 4),
        ("start", 0),
        ("armed", 1),
        ("armed", 2),
    ]
    assert [r.seq for r in done.records] == list(range(1, len(done.records) + 1))


def test_without_keys_the_start_shows_one_record(shop: Workshop) -> None:
    """Warm-up and health polls may run the model thousands of times."""
    shop.put("start", 1)
    done = shop.run(LOOP + "put(generation=2, phase='armed', site={'limit': 2})\n" + LOOP)
    assert [(r.phase, r.values["x"]) for r in done.of("hit")] == [
        ("start", 0),
        ("armed", 0),
        ("armed", 1),
    ]


def test_a_spent_site_is_armed_again_with_another_question(shop: Workshop) -> None:
    """A new generation starts the counters anew and may capture something else."""
    shop.put(limit=1)
    again = "put(generation=2, site={'capture': [{'name': 'twice', 'code': '2 * y'}]})\n"
    done = shop.run(LOOP + again + "model.f(1, 21); model.f(1, 22)")
    assert [r.values for r in done.of("hit")] == [{"x": 0}, {"twice": 42}]


def test_the_same_table_again_changes_nothing(shop: Workshop) -> None:
    """Writing the table once more, after a lost answer, must not re-arm what is spent."""
    shop.put(limit=1)
    done = shop.run("model.f(); put(); model.f(); put(); model.f()")
    assert len(done.of("hit")) == 1


def test_ranks(shop: Workshop) -> None:
    """A rank that is not asked says so once and costs nothing from then on."""
    rank = """
import types
dist = types.ModuleType("torch.distributed")
dist.is_available = dist.is_initialized = lambda: True
dist.get_rank = lambda: 1
sys.modules["torch.distributed"] = dist
put()
"""
    shop.put(ranks=[0, 2])
    done = shop.run(rank + LOOP + "print(_sgldbg.off('p.1'))")
    assert (done.of("hit"), done.stdout) == ([], "True\n")
    assert [r.note for r in done.of("skip")] == ["rank 1 is not asked"]
    shop.put(ranks=[0, 1], limit=1)
    done = shop.run(rank + LOOP)
    assert [r.ranks for r in done.of("hit")] == [{"rank": 1}]


def test_sixteen_threads_share_one_limit(shop: Workshop) -> None:
    """No hit is counted twice and no record is lost or torn."""
    shop.put(limit=5, capture=["x", "'a' * 3000", "'b' * 3000"])
    script = """
gate = threading.Barrier(16)
def work():
    gate.wait()
    for i in range(200): model.f(i)
threads = [threading.Thread(target=work) for _ in range(16)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    done = shop.run("sys.setswitchinterval(1e-5)\n" + script)
    assert len(done.of("hit")) == 5
    assert done.damaged == 0
    assert sorted(r.seq for r in done.records) == list(range(1, len(done.records) + 1))


@pytest.mark.parametrize("key", ["x", "[x][0] if [i for i in (x,)] else x"])
def test_equal_keys_of_two_types_are_two_keys(shop: Workshop, key: str) -> None:
    """1 and True are equal to Python, but a reader of the records tells them apart."""
    shop.put(once_per=[key])
    done = shop.run("for x in (1, True, 1, 0, False, True, 0): model.f(x)")
    assert done.values() == [1, True, 0, False]
    assert [type(v) for v in done.values()] == [int, bool, int, bool]


# The text by which 300 times an `a` is known.
LONG = """ "'" + 'a' * 60 + "'...... #cd335c824d7d" """.strip()
ALIKE = {
    "text": ["'a' * 300", "'a' * 299 + 'b'", "'a' * 300"],
    "list": ["[1] * 8 + [2]", "[1] * 8 + [3]", "[1] * 8 + [2]"],
    "texts in a list": ["['a' * 61 + 'b']", "['a' * 61 + 'c']", "['a' * 61 + 'b']"],
    "deep": ["[[[[[1]]]]]", "[[[[[2]]]]]", "[[[[[1]]]]]"],
    "dict": [
        "{n: n for n in range(9)}",
        "{n: n % 8 for n in range(9)}",
        "{n: n for n in range(9)}",
    ],
    "flag": ["Flag(3)", "Flag(5)", "Flag(3)"],
    "class": ["int", "str", "int"],
    "classes in a list": ["[Flag]", "[enum.Enum]", "[Flag]"],
    "function": ["len", "print", "len"],
    "number of numpy's": ["int64(1)", "int64(2)", "int64(1)"],
    "numbers of numpy's": ["[int64(1)]", "[int64(2)]", "[int64(1)]"],
    "long number of numpy's": ["longdouble(1)", "'1.25'", "longdouble(1)"],
    "long numbers": ["(2 ** 300,)", "(2 ** 300 + 1,)", "(2 ** 300,)"],
    "dates": [
        "datetime.date(2026, 1, 1)",
        "datetime.date(2026, 1, 2)",
        "datetime.date(2026, 1, 1)",
    ],
    "range": ["range(3)", "range(4)", "range(3)"],
    "slice": ["slice(3)", "slice(4)", "slice(3)"],
    "complex": ["1j", "2j", "1j"],
    "bytes that change": ["bytearray(b'a')", "bytearray(b'b')", "bytearray(b'a')"],
    "deque": ["collections.deque([1])", "collections.deque([2])", "collections.deque([1])"],
    "keys of a dict": ["{1: 2}.keys()", "{2: 2}.keys()", "{1: 2}.keys()"],
    "nothing": ["set()", "{}", "set()"],
    "number and its text": ["0.5", "'0.5'", "0.5"],
    "no number and its text": ["float('nan')", "'nan'", "float('nan')"],
    "list and its text": ["[1]", "'[1]'", "[1]"],
    "member and its text": ["Flag(1)", "'Flag.A'", "Flag(1)"],
    "long text and how it is shown": ["'a' * 300", LONG, "'a' * 300"],
    "beyond what is looked at": ["[0] * 5000 + [1]", "[0] * 5001", "(0,) * 5001"],
}


NAMES = """
import collections, datetime, enum
class Flag(enum.Flag): A, B, C = 1, 2, 4
class generic: __module__ = "numpy"
class int64(generic):
    __module__ = "numpy"
    def __init__(self, number): self.number = number
    def item(self): return self.number
class longdouble(int64):
    __module__ = "numpy"
    def item(self): return self
    def __str__(self): return "1.25"
"""


@pytest.mark.parametrize("name", ALIKE)
def test_keys_that_are_alike_in_short_are_told_apart(shop: Workshop, name: str) -> None:
    """A record for each distinct value, though its text is shortened; none for one seen before."""
    shop.put(once_per=["x"], capture=["y"], limit=None)
    calls = "".join(f"model.f({value}, {n})\n" for n, value in enumerate(ALIKE[name]))
    done = shop.run(NAMES + calls)
    assert done.code == 0
    assert [r.values["y"] for r in done.of("hit")] == (
        [0, 2] if name == "beyond what is looked at" else [0, 1]
    )


def test_a_tensor_of_one_element_is_the_number_that_it_holds(shop: Workshop) -> None:
    """As a key, whichever way the server has it; a larger one is its shape."""
    script = """
import types
torch = types.ModuleType("torch")
class Tensor:
    def __init__(self, *values): self.values, self.shape = values, (len(values),)
    def numel(self): return len(self.values)
    def item(self): return self.values[0]
torch.Tensor = Tensor
sys.modules["torch"] = torch
for x in (Tensor(5), 5, Tensor(0.5), 0.5, Tensor(True), Tensor(1, 2), Tensor(3, 4), Tensor(1)):
    model.f(x)
"""
    shop.put(once_per=["x"], capture=["y"], limit=None)
    assert [r.keys for r in shop.run(script).of("hit")] == [
        (5,), (0.5,), (True,), ("tensor(2)",), (1,)
    ]  # fmt: skip


def test_a_key_that_holds_itself(shop: Workshop) -> None:
    """Its text ends."""
    shop.put(once_per=["x"], capture=["y"], limit=None)
    done = shop.run("x = [1]\nx += [x, x]\nmodel.f(x, 0)\nmodel.f(x, 1)\n")
    assert [r.values["y"] for r in done.of("hit")] == [0]
