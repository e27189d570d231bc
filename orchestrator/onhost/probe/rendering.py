"""Values as bounded text and JSON, without running code of the server's."""

from __future__ import annotations

import collections
import datetime
import enum
import hashlib
import itertools
import math
import sys
import types
from typing import Any, List, NamedTuple, Tuple

TEXT = 200  # characters of any text from the server


class Limits(NamedTuple):
    """How much of a value is rendered: of each text, of each container, how deep, and in all."""

    text: int
    items: int
    depth: int
    nodes: int


SHORT = Limits(60, 8, 3, 2000)
# What tells values apart that are alike in short: of what is larger still, the rest does not count.
WHOLE = Limits(1 << 16, 2000, 20, 2000)
CONTAINERS: Tuple[Tuple[Any, str, str], ...] = (
    (list, "[", "]"),
    (tuple, "(", ")"),
    (dict, "{", "}"),
    (set, "{", "}"),
    (frozenset, "{", "}"),
    (collections.deque, "deque[", "]"),
    (type({}.keys()), "keys[", "]"),
    (type({}.values()), "values[", "]"),
    (type({}.items()), "items[", "]"),
)
TIMES = frozenset([datetime.date, datetime.time, datetime.datetime, datetime.timedelta])
OF_PYTHON = frozenset([int, float, complex, bool, str, bytes])
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


class Key(str):
    """Our text of a value that is kept as no scalar: no text of the server's is taken for it."""


def is_tensor(kind: type) -> bool:
    """By the type alone: touching a lazy handle that stands for a tensor has ended a server."""
    base = getattr(sys.modules.get("torch"), "Tensor", None)
    return base is not None and base in kind.__mro__


def show(value: Any) -> Any:
    """A value as JSON: scalars as they are, everything else as its type and a bounded text."""
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is int and value.bit_length() < 64:
        return value
    if kind is str:
        if len(value) <= TEXT:
            return value
        return {"t": "str", "text": value[:TEXT], "len": len(value)}
    if enum.Enum in kind.__mro__:
        return {"t": "enum", "text": text_of(value)}
    if is_scalar(kind):
        plain = plain_of(value)
        return show(str(plain) if type(plain) is Key else plain)
    if is_array(kind):
        shape = [int(size) for size in value.shape]
        dtype = str(getattr(value, "dtype", ""))[:40]
        return {"t": "tensor", "shape": shape, "dtype": dtype, "why": "not a torch tensor"}
    return {"t": kind.__name__, "text": text_of(value)[:TEXT]}


def is_scalar(kind: type) -> bool:
    """One of numpy's own numbers, which are no numbers of Python's."""
    return is_of_numpy(kind, "generic")


def plain_of(scalar: Any) -> Any:
    """Python's number of the same value; of what has none, a `longdouble` or a date, its `Key`."""
    plain = scalar.item()
    return plain if type(plain) in OF_PYTHON else Key(str(scalar))


def is_of_numpy(kind: type, base: str) -> bool:
    """By the types alone; a subclass of somebody else's may run code of theirs."""
    if kind.__module__ != "numpy":
        return False
    return any(one.__module__ == "numpy" and one.__name__ == base for one in kind.__mro__)


def is_array(kind: type) -> bool:
    """Array-likes by their class; beside torch only numpy's, since others may be lazy handles."""
    if kind.__module__ == "numpy":
        return is_of_numpy(kind, "ndarray")
    return "torch" not in sys.modules and hasattr(kind, "shape") and not issubclass(kind, type)


def text_of(value: Any, limits: Limits = SHORT) -> str:
    """Our own rendering: no code of the server's runs, and it ends."""
    return render(value, limits, 0, [limits.nodes])


def key_text(value: Any) -> Key:
    """A text that differs where values do: a shortened one ends with a digest of the whole."""
    short, whole = text_of(value), text_of(value, WHOLE)
    if short == whole and len(short) <= TEXT:
        return Key(short)
    digest = hashlib.blake2b(whole.encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()
    return Key("%s... #%s" % (short[: TEXT - 20], digest))


def render(value: Any, limits: Limits, depth: int, left: List[int]) -> str:
    """`left` counts down what may still be rendered: a list that holds itself twice never ends."""
    kind = type(value)
    left[0] -= 1
    if value is None or kind is bool:
        return repr(value)
    if enum.Enum in kind.__mro__:
        name = getattr(value, "_name_", None)
        if type(name) is not str:  # several members of a flag, up to Python 3.10
            member = getattr(value, "_value_", None)
            name = int.__repr__(member) if type(member) is int else "?"
        return "%s.%s" % (kind.__name__, name)
    if int in kind.__mro__:
        bits = int.bit_length(value)
        if bits < 256:
            return int.__repr__(value)
        # Decimal digits of a large one take long; Python refuses to make too many of them.
        most = limits.text if limits is WHOLE else 0
        return "int of %d bits%s" % (bits, int.__format__(value, "x")[:most])
    if float in kind.__mro__:
        return float.__repr__(value)
    for base in (str, bytes, bytearray):
        if base in kind.__mro__:
            start = base.__getitem__(value, slice(0, limits.text))
            return repr(start) + ("..." if base.__len__(value) > limits.text else "")
    if is_tensor(kind) or is_of_numpy(kind, "ndarray"):
        noun = "tensor" if is_tensor(kind) else "array"
        return "%s(%s)" % (noun, ", ".join(str(int(size)) for size in value.shape))
    if is_scalar(kind):
        plain = plain_of(value)
        return str(plain) if type(plain) is Key else render(plain, limits, depth, left)
    if kind in TIMES and getattr(value, "tzinfo", None) is None:  # a zone may be the server's
        return str(value)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "layout"):
        return str(value)
    if depth < limits.depth and left[0] > 0:
        for base, start, end in CONTAINERS:
            if base in kind.__mro__:
                if base in (set, frozenset) and not base.__len__(value):
                    return "%s()" % base.__name__  # `{}` is a dict
                return start + render_items(base, value, limits, depth + 1, left) + end
        if kind is range or kind is slice:
            bounds = (value.start, value.stop, value.step)
            inside = render_items(tuple, bounds, limits, depth + 1, left)
            return "%s(%s)" % (kind.__name__, inside)
    return render_name(value)


def render_name(value: Any) -> str:
    """A class, a function, or of all else the class, by the name that `type` itself has of it."""
    kind = type(value)
    if complex in kind.__mro__:
        return complex.__repr__(value)
    if type in kind.__mro__:
        return "<class %s>" % class_name(value)
    if kind is types.MethodType:
        value, kind = value.__func__, type(value.__func__)
    if kind in FUNCTIONS:
        return "<function %s>" % dotted(value.__module__, value.__qualname__)
    return "<%s>" % class_name(kind)


def class_name(kind: type) -> str:
    own = type.__dict__
    return dotted(own["__module__"].__get__(kind), own["__qualname__"].__get__(kind))


def dotted(*parts: Any) -> str:
    """Of module and name those that are texts: built-in methods have no module."""
    return ".".join([part for part in parts if type(part) is str])


def render_items(base: Any, value: Any, limits: Limits, depth: int, left: List[int]) -> str:
    """The first ones; the base class's own methods, whatever a subclass overrides."""
    size = base.__len__(value)
    most = min(limits.items, max(left[0], 0))
    if base is dict:
        pairs = itertools.islice(dict.items(value), most)
        texts = [": ".join([render(one, limits, depth, left) for one in pair]) for pair in pairs]
    else:
        items = itertools.islice(base.__iter__(value), most)
        texts = [render(item, limits, depth, left) for item in items]
    more = ["... %d in all" % size] if size > most else []
    end = "," if base is tuple and size == 1 else ""
    return ", ".join(texts + more) + end


def describe(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:
        text = "(no text)"
    return "%s: %s" % (type(error).__name__, text[:TEXT])


def finite(value: Any) -> Any:
    """JSON knows no NaN."""
    if type(value) is float and not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list) else value
