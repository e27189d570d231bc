"""Which names are bound where a statement stands: always, on some ways only, or never."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce

from orchestrator.patching.scope.names import (
    DEFINITIONS,
    assigned,
    evaluated_at_once,
    names_any,
    names_bound,
    names_gone,
)

# Name to whether it is bound on every way (else on some); `None` where no way leads.
State = Mapping[str, bool] | None

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
# `except*` came with 3.11, so that every Python of the controller knows it.
_TRIES = (ast.Try, ast.TryStar)


def bound_at(
    owner: ast.AST,
    place: ast.stmt,
    side: str,
    *,
    strict: bool = False,
    swallowing: Collection[str] = ("suppress",),
) -> State:
    """The names bound before or after `place`, a statement of `owner` itself.

    `owner` is a module, class or function; `None` means that no way leads there. Where it cannot
    be sure (loops, handlers, `suppress`), a name counts as bound on some ways. `strict`: any
    context manager may swallow what its body raises; else only those do that are made with one of
    the `swallowing` names, since it would be said of every `with`.
    """
    flow = _Flow(place, side, strict, swallowing)
    state: State = {}
    if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
        state = dict.fromkeys(_parameters(owner.args), True)
    flow.block(getattr(owner, "body", []), state)
    return flow.found


def _parameters(args: ast.arguments) -> Iterator[str]:
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if arg is not None:
            yield arg.arg


class _Flow:
    """One walk over a scope's statements that remembers the state at one of them."""

    def __init__(
        self, place: ast.stmt, side: str, strict: bool, swallowing: Collection[str]
    ) -> None:
        self.swallowing = swallowing
        self.place = place
        self.side = side
        self.strict = strict
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
            then = self.block(node.body, _evaluated(state, node.test, True))
            return _join(then, self.block(node.orelse, _evaluated(state, node.test, False)))
        if isinstance(node, _LOOPS):
            return self.loop(node, state)
        if isinstance(node, ast.With | ast.AsyncWith):
            return self.with_(node, state)
        if isinstance(node, _TRIES):
            return self.try_(node, state)
        if isinstance(node, ast.Match):
            return self.match(node, state)
        if isinstance(node, ast.Delete):
            return _without(_evaluated(state, node), names_gone(node))
        if isinstance(node, DEFINITIONS):
            for part in evaluated_at_once(node):
                state = _evaluated(state, part)
            return _bind(state, [node.name])
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return state
        return _evaluated(state, node)

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, state: State) -> State:
        outer, self.breaks = self.breaks, []
        if not isinstance(node, ast.While):
            state = _evaluated(state, node.iter)
        entry = _perhaps(state, node)  # what an earlier turn may have bound
        if isinstance(node, ast.While):
            inner = _evaluated(entry, node.test, True)
            left = _evaluated(entry, node.test, False)
        else:
            inner = _bind(entry, (name for name, _ in names_bound(node.target)))
            left = entry
        self.block(node.body, inner)
        endless = (
            isinstance(node, ast.While)
            and isinstance(node.test, ast.Constant)
            and bool(node.test.value)
        )
        left = None if endless else self.block(node.orelse, left)
        for way in self.breaks:
            left = _join(left, way)
        self.breaks = outer
        return left

    def with_(self, node: ast.With | ast.AsyncWith, state: State) -> State:
        caught: State = None  # what is bound wherever in it an exception may be swallowed
        for item in node.items:
            state = _evaluated(state, item.context_expr)
            # Only a plain name is bound for certain once the manager stands guard.
            if item.optional_vars is not None:
                names = [name for name, _ in names_bound(item.optional_vars)]
                plain = isinstance(item.optional_vars, ast.Name)
                entered, state = (_bind(state, names) if plain else state), _bind(state, names)
            else:
                entered = state
            if caught is None and (self.strict or names_any(item.context_expr, self.swallowing)):
                caught = entered
        left = self.block(node.body, state)
        if left is None and caught is None:
            caught = state  # any manager may swallow what ended the body
        return _join(left, _perhaps(caught, node))

    def try_(self, node: ast.Try | ast.TryStar, state: State) -> State:
        earlier, self.breaks = self.breaks, []
        body = ast.Module(body=node.body, type_ignores=[])
        failed = _perhaps(state, body)
        left = self.block(node.orelse, self.block(node.body, state))
        for handler in node.handlers:
            left = _join(left, self.handler(handler, failed))
        ways, self.breaks = self.breaks, earlier
        if not node.finalbody:
            self.breaks += ways
            return left
        # The last part also runs when something above failed, at any point of it, and on the way
        # out by `break`; what it binds and takes away counts on each of these ways.
        whole = ast.Try(node.body, node.handlers, node.orelse, [])
        self.block(node.finalbody, _join(left, _perhaps(state, whole)))
        if ways:
            way = self.block(node.finalbody, reduce(_join, ways))
            self.breaks += [way] if way is not None else []
        return self.block(node.finalbody, left)

    def handler(self, node: ast.ExceptHandler, failed: State) -> State:
        """The state behind a handler; its name is gone whichever way leads out, `break` too."""
        first = len(self.breaks)
        entry = _bind(failed, [node.name] if node.name else [])
        if node.type is not None:
            entry = _join(entry, _evaluated(entry, node.type))
        way = self.block(node.body, entry)
        if node.name:
            way = _without(way, {node.name})
            self.breaks[first:] = [_without(left, {node.name}) for left in self.breaks[first:]]
        return way

    def match(self, node: ast.Match, state: State) -> State:
        state = _evaluated(state, node.subject)
        left: State = None
        for case in node.cases:
            inner = _bind(state, (name for name, _ in names_bound(case.pattern)))
            if case.guard is not None:
                inner = _evaluated(inner, case.guard, True)
            left = _join(left, self.block(case.body, inner))
            if case.guard is None and _takes_all(case.pattern):
                return left
            # Part of a pattern may have bound its names before the rest of it did not match.
            state = _perhaps(_perhaps(state, case.pattern), case.guard)
        return _join(left, state)


def _takes_all(pattern: ast.pattern) -> bool:
    if isinstance(pattern, ast.MatchOr):
        return any(_takes_all(p) for p in pattern.patterns)
    return isinstance(pattern, ast.MatchAs) and (
        pattern.pattern is None or _takes_all(pattern.pattern)
    )


def _bind(state: State, names: Iterable[str]) -> State:
    if state is None:
        return None
    return {**state, **dict.fromkeys(names, True)}


def _without(state: State, names: Collection[str]) -> State:
    return None if state is None else {n: sure for n, sure in state.items() if n not in names}


def _evaluated(state: State, node: ast.AST, outcome: bool | None = None) -> State:
    """The state behind a simple statement, or an expression that turned out to be `outcome`."""
    if state is None:
        return None
    after = dict(state)
    for name, sure in assigned(node, outcome):
        after[name] = sure or after.get(name, False)
    return after


def _perhaps(state: State, node: ast.AST | None) -> State:
    """The state with everything that a part binds, or takes away, bound on some ways."""
    if state is None or node is None:
        return state
    gone = names_gone(node)
    some = dict.fromkeys((name for name, _ in names_bound(node)), False)
    return {**some, **{name: sure and name not in gone for name, sure in state.items()}}


def _join(one: State, other: State) -> State:
    if one is None or other is None:
        return other if one is None else one
    names = {*one, *other}
    return {n: one.get(n, False) and other.get(n, False) for n in names}
