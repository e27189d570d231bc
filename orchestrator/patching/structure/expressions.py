"""A walk over the expressions of a statement whose value another expression could pass on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst

from orchestrator.patching.structure.walk import Path, Statement, Step

# Statements whose expressions are names, or run as part of something else (decorators, defaults).
_CLOSED = (cst.FunctionDef, cst.ClassDef, cst.Import, cst.ImportFrom, cst.Global, cst.Nonlocal,
           cst.Del)  # fmt: skip
# What is bound or only named there, patterns and annotations, and text: nothing to be passed on.
_SKIPPED = frozenset(
    {
        *((kind, "target") for kind in (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For)),
        *((kind, "target") for kind in (cst.NamedExpr, cst.CompFor)),
        (cst.AnnAssign, "annotation"),
        (cst.Attribute, "attr"),
        (cst.Arg, "keyword"),
        (cst.AsName, "name"),
        (cst.MatchCase, "pattern"),
        (cst.Lambda, "params"),
    }
)
_TEXTS = (cst.SimpleString, cst.ConcatenatedString, cst.FormattedString)
_INNER = {cst.Lambda: "a lambda", cst.ListComp: "a comprehension", cst.SetComp: "a comprehension",
          cst.DictComp: "a comprehension", cst.GeneratorExp: "a generator expression"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression of a statement, the way to it, and what code of its own it stands in."""

    statement: Statement
    node: cst.BaseExpression
    path: Path
    inner: str | None = None


def walk_expressions(statement: Statement) -> Iterator[Expression]:
    """The expressions of a statement itself, outer ones first, in order of the source.

    Of a compound statement those of its headers; the statements inside it have their own walk.
    """
    if not isinstance(statement.node, _CLOSED):
        yield from _inside(statement, statement.node, statement.path, None)


def _inside(
    statement: Statement, node: cst.CSTNode, path: Path, inner: str | None
) -> Iterator[Expression]:
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield from _one(statement, value, (*path, Step(node, name)), inner)
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                if isinstance(item, cst.CSTNode):
                    yield from _one(statement, item, (*path, Step(node, name, index)), inner)


def _one(
    statement: Statement, node: cst.CSTNode, path: Path, inner: str | None
) -> Iterator[Expression]:
    if isinstance(node, cst.BaseSuite):
        return
    if isinstance(node, cst.BaseExpression):
        yield Expression(statement, node, path, inner)
        if isinstance(node, _TEXTS):
            return
        inner = _INNER.get(type(node), inner)
    yield from _inside(statement, node, path, inner)


@lru_cache(maxsize=512)
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    names = [f.name for f in dataclasses.fields(kind)]
    return tuple(
        n
        for n in names
        if (kind, n) not in _SKIPPED and not n.startswith(("whitespace", "leading", "trailing"))
    )
