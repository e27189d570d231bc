"""Which names are bound where a statement stands: always, on some ways only, or never."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

# Name to whether it is bound on every way (else on some); `None` where no way leads.
State = Mapping[str, bool] | None

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LAZY = (ast.Lambda, *_DEFINITIONS)
# `except*` came with 3.11, so that every Python of the controller knows it.
_TRIES = (ast.Try, ast.TryStar)


def bound_at(owner: ast.AST, place: ast.stmt, side: str) -> State:
    """The names bound before or after `place`, a statement of `owner` itself.

    `owner` is a module, class or function; `None` means that no way leads there. Where it cannot
    be sure (loops, handlers, context managers that swallow), a name counts as bound on some ways.
    """
    flow = _Flow(place, side)
    state: State = {}
    if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
        state = dict.fromkeys(_parameters(owner.args), True)
    flow.block(getattr(owner, "body", []), state)
    return flow.found


def _parameters(args: ast.arguments) -> Iterator[str]:
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if arg is not None:
            yield arg.arg


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


def _binds(item: ast.AST) -> Iterator[str]:
    if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
        yield item.id
    elif isinstance(item, _DEFINITIONS):
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


class _Flow:
    """One walk over a scope's statements that remembers the state at one of them."""

    def __init__(self, place: ast.stmt, side: str) -> None:
        self.place = place
        self.side = side
        self.found: State = None
        self.breaks: list[State] = []

    def block(self, statements: Sequence[ast.stmt], state: State) -> State:
        for statement in statements:
            if state is None:
                return None
            if statement is self.place and self.side == "before":
                self.found = _join(self.found, state)
            state = self.statement(statement, state)
            if statement is self.place and self.side == "after":
                self.found = _join(self.found, state)
        return state

    def statement(self, node: ast.stmt, state: State) -> State:
        if isinstance(node, ast.Return | ast.Raise | ast.Continue):
            return None
        if isinstance(node, ast.Break):
            self.breaks.append(state)
            return None
        if isinstance(node, ast.If):
            state = _bind(state, _walrus(node.test))
            return _join(self.block(node.body, state), self.block(node.orelse, state))
        if isinstance(node, _LOOPS):
            return self.loop(node, state)
        if isinstance(node, ast.With | ast.AsyncWith):
            return self.with_(node, state)
        if isinstance(node, _TRIES):
            return self.try_(node, state)
        if isinstance(node, ast.Match):
            return self.match(node, state)
        if isinstance(node, ast.Delete):
            gone = {t.id for t in node.targets if isinstance(t, ast.Name)}
            return {n: sure for n, sure in (state or {}).items() if n not in gone}
        if isinstance(node, _DEFINITIONS):
            return _bind(state, [node.name])
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return state
        return _bind(state, (name for name, _ in names_bound(node)))

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, state: State) -> State:
        outer, self.breaks = self.breaks, []
        entry = _perhaps(state, node)  # what an earlier turn may have bound
        inner: State = entry
        if isinstance(node, ast.While):
            inner = _bind(inner, _walrus(node.test))
        else:
            inner = _bind(inner, (name for name, _ in names_bound(node.target)))
        self.block(node.body, inner)
        endless = (
            isinstance(node, ast.While)
            and isinstance(node.test, ast.Constant)
            and bool(node.test.value)
        )
        left = None if endless else self.block(node.orelse, entry)
        for way in self.breaks:
            left = _join(left, way)
        self.breaks = outer
        return left

    def with_(self, node: ast.With | ast.AsyncWith, state: State) -> State:
        for item in node.items:
            state = _bind(state, _walrus(item.context_expr))
            if item.optional_vars is not None:
                state = _bind(state, (name for name, _ in names_bound(item.optional_vars)))
        left = self.block(node.body, state)
        # The manager may swallow the exception that ended the body.
        return left if left is not None else _perhaps(state, node)

    def try_(self, node: ast.Try | ast.TryStar, state: State) -> State:
        body = ast.Module(body=node.body, type_ignores=[])
        failed = _perhaps(state, body)
        left = self.block(node.orelse, self.block(node.body, state))
        for handler in node.handlers:
            entry = _bind(failed, [handler.name] if handler.name else [])
            way = self.block(handler.body, entry)
            if way is not None and handler.name:
                way = {n: sure for n, sure in way.items() if n != handler.name}
            left = _join(left, way)
        if not node.finalbody:
            return left
        # The last part also runs when something above failed, at any point of it.
        whole = ast.Module(body=[*node.body, *node.orelse], type_ignores=[])
        entry = _join(left, _perhaps(state, whole))
        after = self.block(node.finalbody, entry)
        if left is None or after is None:
            return None
        return _bind(left, (n for n, sure in after.items() if sure))

    def match(self, node: ast.Match, state: State) -> State:
        state = _bind(state, _walrus(node.subject))
        left: State = None
        for case in node.cases:
            names = [name for name, _ in names_bound(case.pattern)]
            left = _join(left, self.block(case.body, _bind(state, names)))
            if case.guard is None and _takes_all(case.pattern):
                return left
        return _join(left, state)


def _takes_all(pattern: ast.pattern) -> bool:
    if isinstance(pattern, ast.MatchOr):
        return any(_takes_all(p) for p in pattern.patterns)
    return isinstance(pattern, ast.MatchAs) and (
        pattern.pattern is None or _takes_all(pattern.pattern)
    )


def _walrus(node: ast.expr) -> Iterator[str]:
    return (name for name, _ in names_bound(ast.Expr(node)))


def _bind(state: State, names: Iterable[str]) -> State:
    if state is None:
        return None
    return {**state, **dict.fromkeys(names, True)}


def _perhaps(state: State, node: ast.AST) -> State:
    """The state with everything that a part binds bound on some ways."""
    if state is None:
        return None
    return {**dict.fromkeys((name for name, _ in names_bound(node)), False), **state}


def _join(one: State, other: State) -> State:
    if one is None or other is None:
        return other if one is None else one
    names = {*one, *other}
    return {n: one.get(n, False) and other.get(n, False) for n in names}
