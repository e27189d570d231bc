"""Comparison of a pattern with code by structure: layout never counts, order and names do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import libcst as cst

from orchestrator.patching.structure.literals import Number, Text, number_value, text_pieces
from orchestrator.patching.structure.pattern import Pattern, hole_of, run_of

# What the holes of a pattern stand for; a run is a tuple.
Bindings = Mapping[str, object]

# Fields that only lay code out. Parentheses, commas and semicolons are among them: where they
# mean something (`a,` or `x[a,]`) LibCST has another node, or `_index` below tells them apart.
_LAYOUT = frozenset(
    {
        *("lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace"),
        *("comma", "trailing_comma", "semicolon", "separator", "dot", "colon"),
        *("first_colon", "second_colon", "leading_lines", "lines_after_decorators"),
        *("leading_whitespace", "trailing_whitespace", "header", "footer", "indent", "newline"),
        *("encoding", "default_indent", "default_newline", "has_trailing_newline"),
    }
)
# `equal` is layout for arguments and parameters, but `f"{x = }"` shows it.
_LAYOUT_EQUAL = (cst.Arg, cst.Param, cst.AnnAssign)
_BODIES = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})


def match(pattern: Pattern, node: cst.CSTNode) -> Bindings | None:
    """What the holes stand for where `node` fits the pattern exactly, else `None`."""
    skip = _BODIES if pattern.is_header else frozenset()
    if skip and isinstance(pattern.node, cst.Try) and isinstance(node, cst.TryStar):
        return {}  # `try:` says nothing of its handlers, whose star makes it another node
    return next(_node(pattern.node, node, {}, skip), None)


def same_code(one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether two pieces of code are equal but for their layout."""
    return next(_node(one, other, {}), None) is not None


def _node(
    p: cst.CSTNode, t: cst.CSTNode, env: Bindings, skip: frozenset[str] = frozenset()
) -> Iterator[Bindings]:
    hole = hole_of(p)
    if hole is not None:
        if isinstance(t, cst.BaseExpression):
            yield from _bind(hole, t, env)
        return
    if isinstance(p, Text) and isinstance(t, Text):
        yield from _text(p, t, env)
        return
    if type(p) is not type(t):
        return
    if isinstance(p, Number):
        if isinstance(t, Number) and number_value(p) == number_value(t):
            yield env
        return
    yield from _fields(_pairs(p, t, skip), env)


def _pairs(
    p: cst.CSTNode, t: cst.CSTNode, skip: frozenset[str]
) -> tuple[tuple[object, object], ...]:
    """The values that must agree for two nodes of one type to agree."""
    if isinstance(p, cst.Parameters) and isinstance(t, cst.Parameters):
        return ((parameter_row(p), parameter_row(t)),)
    if isinstance(p, cst.Subscript) and isinstance(t, cst.Subscript):
        if len(p.slice) == 1 and run_of(p.slice[0]) is not None:
            return ((p.value, t.value), (p.slice, t.slice))
        return ((p.value, t.value), (_index(p), _index(t)))
    if isinstance(p, cst.Param) and isinstance(t, cst.Param):
        # The star is told by `parameter_row`.
        return ((p.name, t.name), (p.annotation, t.annotation), (p.default, t.default))
    if isinstance(p, cst.FormattedStringExpression) and p.equal is not None:
        return ((_code(p), _code(t)),)  # `f"{x = }"` shows its own layout
    if isinstance(p, cst.ClassDef) and isinstance(t, cst.ClassDef):
        skip = skip | {"bases", "keywords"}
        rows = ((*p.bases, *p.keywords), (*t.bases, *t.keywords))
        return (rows, *_plain_pairs(p, t, skip))
    return _plain_pairs(p, t, skip)


def _plain_pairs(
    p: cst.CSTNode, t: cst.CSTNode, skip: frozenset[str]
) -> tuple[tuple[object, object], ...]:
    names: tuple[str, ...] = tuple(n for n in _meaningful(type(p)) if n not in skip)
    if isinstance(p, cst.FunctionDef | cst.ClassDef) and not p.decorators:
        names = tuple(n for n in names if n != "decorators")
    return tuple((getattr(p, n), getattr(t, n)) for n in names)


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


@lru_cache(maxsize=512)
def _meaningful(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    layout = _LAYOUT | {"equal"} if kind in _LAYOUT_EQUAL else _LAYOUT
    return tuple(
        f.name
        for f in dataclasses.fields(kind)
        if f.name not in layout and not f.name.startswith("whitespace")
    )


def _fields(pairs: tuple[tuple[object, object], ...], env: Bindings) -> Iterator[Bindings]:
    if not pairs:
        yield env
        return
    for found in _value(*pairs[0], env):
        yield from _fields(pairs[1:], found)


def _value(p: object, t: object, env: Bindings) -> Iterator[Bindings]:
    if isinstance(p, cst.BaseSuite) and isinstance(t, cst.BaseSuite):
        yield from _run(_flat(p), _flat(t), env)
    elif isinstance(p, cst.CSTNode) and isinstance(t, cst.CSTNode):
        yield from _node(p, t, env)
    elif isinstance(p, list | tuple) and isinstance(t, list | tuple):
        yield from _run(p, t, env)
    elif p == t:
        yield env


def _run(p: Sequence[object], t: Sequence[object], env: Bindings) -> Iterator[Bindings]:
    """Match two sequences; a run in the pattern takes as few elements as will do."""
    if not p:
        if not t:
            yield env
        return
    name = run_of(p[0]) if isinstance(p[0], cst.CSTNode) else None
    if name is not None:
        for count in range(len(t) + 1):
            for found in _bind(name or "_", tuple(t[:count]), env):
                yield from _run(p[1:], t[count:], found)
    elif t:
        for found in _value(p[0], t[0], env):
            yield from _run(p[1:], t[1:], found)


def _bind(name: str, value: object, env: Bindings) -> Iterator[Bindings]:
    if name == "_":
        yield env
    elif name not in env:
        yield {**env, name: value}
    elif next(_value(env[name], value, {}), None) is not None:
        yield env


def _text(p: Text, t: Text, env: Bindings) -> Iterator[Bindings]:
    yield from _run(text_pieces(p), text_pieces(t), env)


def _flat(suite: cst.BaseSuite) -> list[cst.CSTNode]:
    """The statements of a suite, whether or not they share lines."""
    flat: list[cst.CSTNode] = []
    for item in suite.body:
        flat.extend(item.body if isinstance(item, cst.SimpleStatementLine) else [item])
    return flat


def parameter_row(node: cst.Parameters) -> list[object]:
    """Parameters in one row, so that a run may span their kinds."""
    row: list[object] = list(node.posonly_params)
    if isinstance(node.posonly_ind, cst.ParamSlash):
        row.append("/")
    row.extend(node.params)
    if isinstance(node.star_arg, cst.Param):
        row.append(("*", node.star_arg))
    elif isinstance(node.star_arg, cst.ParamStar):
        row.append("*")
    row.extend(node.kwonly_params)
    if node.star_kwarg is not None:
        row.append(("**", node.star_kwarg))
    return row


def _index(node: cst.Subscript) -> list[object]:
    """The elements of an index; `x[a, b]`, `x[(a, b)]` mean the same, `x[a]`, `x[a,]` do not."""
    elements: list[object] = list(node.slice)
    only = node.slice[0] if len(node.slice) == 1 else None
    if only is None:
        return ["tuple", *elements]
    if isinstance(only.slice, cst.Index) and isinstance(only.slice.value, cst.Tuple):
        inner = only.slice.value.elements
        if all(isinstance(e, cst.Element) for e in inner):
            return ["tuple", *(cst.SubscriptElement(cst.Index(e.value)) for e in inner)]
    if isinstance(only.comma, cst.Comma):
        return ["tuple", only]
    return elements
