"""What the table asks at one site: expressions, compiled once, and the counters of their limits."""

from __future__ import annotations

import ast
import builtins
import enum
import sys
import time
import types
from typing import Any, Dict, List, Optional, Set, Tuple

# Expressions of these alone run no kernel and copy nothing; `Index` is Python 3.8's.
PLAIN: Tuple[Any, ...] = (ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Slice)
PLAIN += (ast.UnaryOp, ast.USub, ast.Tuple, ast.Constant, ast.Load)
PLAIN += (getattr(ast, "Index", ast.Load),)
SIMPLE = frozenset([int, str, bool, type(None)])


class Code:
    """One expression, compiled once; `failure` is why it cannot be."""

    def __init__(self, name: str, text: str, owner: Optional[str]) -> None:
        self.name = name
        self.failure: Optional[Exception] = None
        self.merged = self.plain = False
        self.names: Set[str] = set()
        try:
            tree = ast.parse("(" + text + "\n)", "<sgldbg>", "eval")
            mangle(tree, owner)
            self.tree = tree
            self.code: Any = compile(tree, "<sgldbg>", "eval")
            self.names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
            # A nested scope (comprehension, lambda) would look names up in the globals only.
            self.merged = any(isinstance(c, types.CodeType) for c in self.code.co_consts)
            self.plain = all(isinstance(node, PLAIN) for node in ast.walk(tree))
        except Exception as error:
            self.failure = error

    def value(self, glob: Dict[str, Any], loc: Dict[str, Any]) -> Any:
        if self.failure is not None:
            # A new one each time: an exception that is kept keeps the frames it was raised through.
            raise type(self.failure)(*self.failure.args)
        if self.merged:
            return eval(self.code, dict(glob, **loc))
        return eval(self.code, glob, loc)


class Site:
    """One site's questions and counters since the table last changed."""

    def __init__(self, name: str, spec: Dict[str, Any], armed: bool) -> None:
        owner = spec.get("class")

        def code(label: str, text: Optional[str]) -> Optional[Code]:
            return None if text is None else Code(label, text, owner)

        self.name = name
        self.clear = bool(spec.get("clear")) and sys.version_info < (3, 13)
        self.capture = [Code(c["name"], c["code"], owner) for c in spec.get("capture") or ()]
        self.once_per = [Code(text, text, owner) for text in spec.get("once_per") or ()]
        self.when = code("when", spec.get("when"))
        self.emit_if = code("emit_if", spec.get("emit_if"))
        self.expect = [
            (Code(label, e["that"], owner), code(label, e.get("when")))
            for label, e in (spec.get("expect") or {}).items()
        ]
        self.ranks = frozenset(spec.get("ranks") or ())
        # Before the probes are armed nothing but the keys limits: one record for each.
        self.unique = bool(self.once_per) or not armed
        self.max_keys = int(spec.get("max_keys") or 64) if self.once_per else 1
        self.limit = spec.get("limit") if armed else None
        self.every = max(1, int(spec.get("every") or 1)) if armed else 1
        self.rate = spec.get("rate_per_s") if armed else None
        self.tokens = max(1.0, float(self.rate or 1))
        self.refilled = time.monotonic()
        self.hits = self.qualified = self.emitted = self.troubles = 0
        self.keys: Set[Any] = set()
        self.known: Set[Any] = set()  # values of `once_per` that need no further look
        self.key_code = join(self.once_per)
        asked = [*self.capture, *self.once_per, self.when, self.emit_if]
        asked += [code for pair in self.expect for code in pair]
        self.names = {name for code in asked if code is not None for name in code.names}
        self.own: Tuple[Any, List[str]] = (None, [])
        self.skips: Dict[str, int] = {}
        self.skipped: Set[Any] = set()
        self.spent = False
        self.reported = 0
        self.next_report = 0.0

    def list_unbound(self, code: Any, loc: Dict[str, Any]) -> List[str]:
        """The names asked for that are the code's own and have no value now.

        A global or builtin that is spelt alike is not what they mean there.
        """
        known, own = self.own
        if known is not code:
            names = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
            own = [name for name in self.names if name in names]
            self.own = (code, own)
        return [name for name in own if name not in loc]

    def raw_keys(self, glob: Dict[str, Any], loc: Dict[str, Any]) -> Optional[Tuple[Any, ...]]:
        """The values of `once_per` in one go, with their types; `None` where one is not simple."""
        if self.key_code is None:
            return None
        try:
            raw: Tuple[Any, ...] = eval(self.key_code, glob, loc)
        except Exception:
            return None
        for value in raw:
            if type(value) not in SIMPLE and enum.Enum not in type(value).__mro__:
                return None
        return with_types(raw)


def without(glob: Dict[str, Any], names: List[str]) -> Dict[str, Any]:
    """The globals with none of these names in them, nor among the builtins."""
    kept = {name: value for name, value in glob.items() if name not in names}
    built = glob.get("__builtins__", builtins)
    built = built if isinstance(built, dict) else vars(built)
    kept["__builtins__"] = {name: value for name, value in built.items() if name not in names}
    return kept


def with_types(keys: Tuple[Any, ...]) -> Tuple[Any, ...]:
    """The same, told apart where values of two types are equal: 1 and True, 0 and False."""
    return (*map(type, keys), *keys)


def join(codes: List[Code]) -> Any:
    """One code object for the tuple of all; `None` where one of them needs a scope of its own."""
    if not codes or any(code.failure or code.merged for code in codes):
        return None
    elements = [code.tree.body for code in codes]
    tree = ast.Expression(ast.Tuple(elements, ast.Load()))
    return compile(ast.fix_missing_locations(tree), "<sgldbg>", "eval")


def mangle(tree: ast.AST, owner: Optional[str]) -> None:
    """Private names as the compiler would see them inside the class."""
    stem = (owner or "").lstrip("_")
    for node in ast.walk(tree) if stem else ():
        for field in ("id", "attr", "arg"):
            name = getattr(node, field, None)
            if isinstance(name, str) and name.startswith("__") and not name.endswith("__"):
                setattr(node, field, "_%s%s" % (stem, name))
