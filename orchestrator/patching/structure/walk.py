"""A walk over the statements of a LibCST tree that remembers the way to each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

Definition = cst.FunctionDef | cst.ClassDef

# Fields of compound statements that hold further statements, in the order of the source.
_PARTS = ("body", "cases", "handlers", "orelse", "finalbody")


@dataclass(frozen=True, slots=True)
class Step:
    """One step down the tree: `node.field`, or `node.field[index]`."""

    node: cst.CSTNode
    field: str
    index: int | None = None


Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, small or compound, with the way to it from the module."""

    node: cst.BaseSmallStatement | cst.BaseCompoundStatement
    path: Path

    @property
    def container(self) -> cst.CSTNode:
        """The line, suite, block or module whose `body` holds this statement."""
        return self.path[-1].node

    @property
    def index(self) -> int:
        """Where in the container's body this statement stands."""
        index = self.path[-1].index
        assert index is not None
        return index

    @property
    def is_small(self) -> bool:
        """Whether other statements can share its line."""
        return isinstance(self.node, cst.BaseSmallStatement)

    def definitions(self) -> tuple[Definition, ...]:
        """The functions and classes around this statement, outermost first."""
        return tuple(s.node for s in self.path if isinstance(s.node, Definition))


def walk_block(block: cst.CSTNode, path: Path, *, nested: bool) -> Iterator[Statement]:
    """All statements of a module, block or suite, in order of the source.

    The bodies of functions and classes are entered only with `nested`.
    """
    for index, item in enumerate(getattr(block, "body", ())):
        here = (*path, Step(block, "body", index))
        if isinstance(item, cst.SimpleStatementLine):
            for number, small in enumerate(item.body):
                yield Statement(small, (*here, Step(item, "body", number)))
        elif isinstance(item, cst.BaseSmallStatement):
            yield Statement(item, here)
        else:
            yield Statement(item, here)
            if nested or not isinstance(item, Definition):
                yield from walk_parts(item, here, nested=nested)


def walk_parts(owner: cst.CSTNode, path: Path, *, nested: bool) -> Iterator[Statement]:
    """All statements inside one compound statement, `elif`, `except`, `case` and the like."""
    for field in _PARTS:
        part = getattr(owner, field, None)
        if isinstance(part, cst.BaseSuite):
            yield from walk_block(part, (*path, Step(owner, field)), nested=nested)
        elif isinstance(part, cst.CSTNode):
            yield from walk_parts(part, (*path, Step(owner, field)), nested=nested)
        else:
            for index, item in enumerate(part or ()):
                yield from walk_parts(item, (*path, Step(owner, field, index)), nested=nested)


def walk_definition(statement: Statement) -> Iterator[Statement]:
    """The statements of a function or class itself, without those of definitions inside it."""
    return walk_parts(statement.node, statement.path, nested=False)


def qualified_name(statement: Statement) -> str:
    """The dotted name of a definition statement, or of the scope that holds a statement."""
    names = [d.name.value for d in statement.definitions()]
    if isinstance(statement.node, Definition):
        names.append(statement.node.name.value)
    return ".".join(names)


def scope_name(statement: Statement) -> str | None:
    """The dotted name of the scope that a statement stands in; `None` for the module."""
    return ".".join(d.name.value for d in statement.definitions()) or None


def find_definitions(module: cst.Module, name: str) -> list[Statement]:
    """Every function or class of that qualified name, in order of the source.

    `<locals>`, as `__qualname__` writes it, may stand in the name. Definitions in branches count,
    so that there may be several; `@overload` stubs do not.
    """
    level = list(walk_block(module, (), nested=False))
    found: list[Statement] = []
    parts = [p for p in name.split(".") if p != "<locals>"]
    for number, part in enumerate(parts):
        found = [s for s in level if isinstance(s.node, Definition) and s.node.name.value == part]
        if number < len(parts) - 1:
            level = [inner for s in found for inner in walk_definition(s)]
    return [s for s in found if not _is_overload(s.node)]


def all_definitions(module: cst.Module) -> list[Statement]:
    """Every function and class of a file, nested ones too, in order of the source."""
    return [s for s in walk_block(module, (), nested=True) if isinstance(s.node, Definition)]


def dotted_name(node: cst.CSTNode) -> str | None:
    """`a.b.c` of a chain of attributes over a name (calls looked through), else `None`."""
    if isinstance(node, cst.Call):
        return dotted_name(node.func)
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr.value}" if base else None
    return None


def decorator_names(node: cst.CSTNode) -> tuple[str, ...]:
    """The dotted names of a definition's decorators, outermost first; odd ones are left out."""
    names = (dotted_name(d.decorator) for d in getattr(node, "decorators", ()))
    return tuple(n for n in names if n)


def _is_overload(node: cst.CSTNode) -> bool:
    return any(n.rsplit(".", 1)[-1] == "overload" for n in decorator_names(node))


def docstring_of(body: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """The docstring statement that a module, block or suite begins with, if it has one."""
    first = next(iter(getattr(body, "body", ())), None)
    if isinstance(first, cst.SimpleStatementLine):
        first = first.body[0]
    if not isinstance(first, cst.Expr):
        return None
    text = first.value
    if isinstance(text, cst.ConcatenatedString):
        text = text.left
    if isinstance(text, cst.SimpleString) and "b" not in text.prefix.lower():
        return first
    return None
