"""Which names a piece of code binds or takes away, and whether it does so whenever it runs."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LAZY = (ast.Lambda, *DEFINITIONS)
# `-O` leaves asserts out; a comprehension may have no turn.
_NEVER_SURE = (ast.Assert, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def names_bound(node: ast.AST) -> list[tuple[str, int]]:
    """Every name that a statement or block binds in its own scope, with its line, in order."""
    return sorted(_names_bound(node), key=lambda found: found[1])


def _names_bound(node: ast.AST) -> Iterator[tuple[str, int]]:
    waiting = [node]
    while waiting:
        item = waiting.pop()
        for name in _binds(item):
            yield name, getattr(item, "lineno", 0)
        if isinstance(item, ast.comprehension):
            waiting.extend((item.iter, *item.ifs))  # its own variable stays inside it
        elif item is node or not isinstance(item, _LAZY):
            waiting.extend(ast.iter_child_nodes(item))
        else:
            waiting.extend(evaluated_at_once(item))


def _binds(item: ast.AST) -> Iterator[str]:
    if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
        yield item.id
    elif isinstance(item, DEFINITIONS):
        yield item.name
    elif isinstance(item, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        if item.name:
            yield item.name
    elif isinstance(item, ast.MatchMapping) and item.rest:
        yield item.rest
    elif isinstance(item, ast.Import | ast.ImportFrom):
        for alias in item.names:
            if alias.name != "*":
                yield alias.asname or alias.name.split(".", 1)[0]


def names_inside(node: ast.AST) -> set[str]:
    """The parameters of lambdas and the variables of comprehensions anywhere in a part."""
    found: set[str] = set()
    for item in ast.walk(node):
        if isinstance(item, ast.Lambda):
            found |= {arg.arg for arg in ast.walk(item.args) if isinstance(arg, ast.arg)}
        elif isinstance(item, ast.comprehension):
            found |= {n.id for n in ast.walk(item.target) if isinstance(n, ast.Name)}
    return found


def names_gone(node: ast.AST) -> set[str]:
    """Names that something in a part may take away: `del`, and the end of `except ... as`."""
    gone: set[str] = set()
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Del):
            gone.add(item.id)
        elif isinstance(item, ast.ExceptHandler) and item.name:
            gone.add(item.name)
        if item is node or not isinstance(item, _LAZY):
            waiting.extend(ast.iter_child_nodes(item))
    return gone


def names_gone_inside(owner: ast.AST) -> set[str]:
    """Names of a function that functions and classes in it may take away, by `nonlocal`."""
    gone: set[str] = set()
    for inner in ast.walk(owner):
        if inner is not owner and isinstance(inner, DEFINITIONS):
            declared = {n for d in ast.walk(inner) if isinstance(d, ast.Nonlocal) for n in d.names}
            gone |= declared & names_gone(inner)
    return gone


def names_swallowing(module: ast.AST) -> frozenset[str]:
    """The names by which a file knows `contextlib.suppress`, and what it has made with it."""
    found = {"suppress"}
    nodes = list(ast.walk(module))
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found |= {a.asname for a in node.names if a.name == "suppress" and a.asname}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            made_so = node.value is not None and names_any(node.value, found)
            found |= {name for name, _ in names_bound(node)} if made_so else set()
    return frozenset(found)


def names_any(node: ast.AST, names: Collection[str]) -> bool:
    """Whether an expression has one of these names in it, as a name or an attribute."""
    return any(getattr(n, "attr", getattr(n, "id", "")) in names for n in ast.walk(node))


def evaluated_at_once(node: ast.AST) -> Iterator[ast.expr]:
    """What a definition or lambda evaluates where it stands: decorators, bases, default values."""
    yield from getattr(node, "decorator_list", ())
    yield from getattr(node, "bases", ())
    yield from (word.value for word in getattr(node, "keywords", ()))
    args = getattr(node, "args", None)
    if isinstance(args, ast.arguments):
        yield from (default for default in (*args.defaults, *args.kw_defaults) if default)


def assigned(node: ast.AST, outcome: bool | None = None) -> Iterator[tuple[str, bool]]:
    """The names that evaluating a simple statement or an expression binds, in order, and whether
    it does so always; `outcome` is what the expression was found to be, where that is known.

    `if a and (b := c):` binds `b` on the way into its body, and perhaps on the way past it.
    """
    if isinstance(node, _LAZY):
        yield from _all((evaluated_at_once(node)), sure=True)
        return
    if isinstance(node, ast.BoolOp):
        # Where `and` gives true, or `or` false, all of it was evaluated and found to be that.
        whole = outcome is isinstance(node.op, ast.And)
        yield from assigned(node.values[0], outcome if whole else None)
        for value in node.values[1:]:
            yield from _weakened(assigned(value, outcome if whole else None), whole)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from assigned(node.operand, None if outcome is None else not outcome)
    elif isinstance(node, ast.NamedExpr):
        yield from assigned(node.value, outcome)
        yield from assigned(node.target)
    elif isinstance(node, ast.IfExp):
        yield from assigned(node.test)
        yield from _all((node.body, node.orelse), sure=False)
    elif isinstance(node, ast.Compare):
        yield from _all((node.left, node.comparators[0]), sure=True)
        yield from _all(node.comparators[1:], sure=outcome is True)
    elif isinstance(node, _NEVER_SURE):
        yield from ((name, False) for name, _ in names_bound(node))
    else:
        yield from ((name, True) for name in _binds(node))
        yield from _all(ast.iter_child_nodes(node), sure=True)


def _all(nodes: Iterable[ast.AST], *, sure: bool) -> Iterator[tuple[str, bool]]:
    for node in nodes:
        yield from _weakened(assigned(node), sure)


def _weakened(found: Iterable[tuple[str, bool]], sure: bool) -> Iterator[tuple[str, bool]]:
    return ((name, sure and always) for name, always in found)
