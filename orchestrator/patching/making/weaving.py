"""Builds a new tree from an old one and the changes to it, copying only what lies above them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import libcst as cst
from libcst._nodes.internal import CodegenState

from orchestrator.patching.structure.walk import Path


class Placed(Protocol):
    """A change as `orchestrator.patching.making.splice` describes it."""

    @property
    def path(self) -> Path: ...
    @property
    def side(self) -> str: ...
    @property
    def nodes(self) -> Sequence[cst.CSTNode]: ...


@dataclass(frozen=True, slots=True)
class Wrap:
    """A call around an expression, by the ids of both; `grouped`: the parentheses are ours too."""

    call: int
    inner: int
    grouped: bool


@dataclass(frozen=True, slots=True)
class Replaced:
    """New nodes in the place of an old one, by their ids.

    `left`: so many comment lines above the old one stand above something else now.
    """

    new: tuple[int, ...]
    old: int
    left: int = 0


@dataclass
class Woven:
    """Where in a new tree the new nodes are, by their ids."""

    marks: list[int] = field(default_factory=list)
    # New line to the last comment line above it, which was the old statement's.
    lines: dict[int, int] = field(default_factory=dict)
    wraps: list[Wrap] = field(default_factory=list)
    replaced: list[Replaced] = field(default_factory=list)
    kept: list[cst.CSTNode] = field(default_factory=list)  # ids stay true while the nodes live

    def wanted(self) -> frozenset[int]:
        """Every node whose place in the new code matters."""
        wraps = (i for w in self.wraps for i in (w.call, w.inner))
        new = (i for r in self.replaced for i in r.new)
        return frozenset((*self.marks, *self.lines.values(), *wraps, *new))

    def mark(self, node: cst.CSTNode) -> cst.CSTNode:
        """Note a node that is new."""
        self.marks.append(self.keep(node))
        return node

    def keep(self, node: cst.CSTNode) -> int:
        """The id of a node, which lives on."""
        self.kept.append(node)
        return id(node)


@dataclass(frozen=True, slots=True)
class _Spot:
    """One old statement with what comes before, in place of, and after it."""

    before: Sequence[cst.CSTNode]
    node: cst.CSTNode
    instead: Sequence[cst.CSTNode]
    after: Sequence[cst.CSTNode]


class _Known:
    """Stands in a new tree for a statement that no change touches, with its code.

    To generate the whole tree again is a third of the parse.
    """

    __slots__ = ("code",)

    def __init__(self, code: str) -> None:
        self.code = code

    def _codegen(self, state: CodegenState) -> None:
        line = state.default_newline
        if self.code.endswith(("\n", "\r")):
            state.add_token(self.code)
        else:
            # The end of the file, which has no end of line: LibCST drops the last token there.
            state.tokens += [self.code, line]


class Weaver:
    """One use of it makes one new tree, for generating code and nothing else.

    `code_of` gives the code of a statement of the old tree, so that what stays is not generated.
    `fences`: calls around expressions get parentheses nowhere (0), around expressions that have
    some themselves (1), or wherever a word may touch the expression (2).
    """

    def __init__(
        self, changes: Sequence[Placed], code_of: Callable[[cst.CSTNode], str], *, fences: int = 0
    ) -> None:
        self.fences = fences
        self.code_of = code_of
        self.woven = Woven()
        self.at: dict[int, list[Placed]] = {}
        self.around: dict[tuple[int, str, int | None], list[Placed]] = {}
        self.below: dict[int, dict[tuple[str, int | None], None]] = {}
        for change in changes:
            *above, last = change.path
            if change.side in ("wrap", "decorate"):
                above.append(last)
                self.around.setdefault((id(last.node), last.field, last.index), []).append(change)
            else:
                self.at.setdefault(id(last.node), []).append(change)
            for step in above:
                self.below.setdefault(id(step.node), {})[step.field, step.index] = None

    def weave(self, module: cst.Module) -> tuple[cst.Module, Woven]:
        """The module with all changes in it, and where they are."""
        new = self.copy(module)
        assert isinstance(new, cst.Module)
        return new, self.woven

    def copy(self, node: cst.CSTNode) -> cst.CSTNode:
        changed: dict[str, object] = {}
        for name, index in self.below.get(id(node), ()):
            child = getattr(node, name)
            if index is None:
                changed[name] = self.child((id(node), name, index), child)
            else:
                row = changed.setdefault(name, list(child))
                assert isinstance(row, list)
                row[index] = self.child((id(node), name, index), child[index])
        if id(node) in self.at:
            body = changed.get("body", list(getattr(node, "body", ())))
            assert isinstance(body, list)
            small = isinstance(node, cst.SimpleStatementLine | cst.SimpleStatementSuite)
            put = self.join if small else self.stack
            changed["body"] = put(body, list(getattr(node, "body", ())), self.at[id(node)])
        if isinstance(node, cst.Module | cst.IndentedBlock):
            changed["body"] = self.known(node.body, changed["body"])
        return node.with_changes(**changed)

    def known(self, old: Sequence[cst.CSTNode], new: object) -> list[object]:
        """The statements of a block, those that stayed as they were by their code alone."""
        assert isinstance(new, list)
        stayed = {id(n) for n in old}
        return [_Known(self.code_of(n)) if id(n) in stayed else n for n in new]

    def child(self, place: tuple[int, str, int | None], node: cst.CSTNode) -> cst.CSTNode:
        new = self.copy(node) if id(node) in self.below or id(node) in self.at else node
        for change in self.around.get(place, ()):
            added = change.nodes[0]
            if isinstance(added, cst.Decorator):
                self.woven.mark(added)
                new = new.with_changes(decorators=(*getattr(new, "decorators", ()), added))
            else:
                assert isinstance(added, cst.Call)
                new = self.wrap(added, new)
        return new

    def wrap(self, call: cst.Call, inner: cst.CSTNode) -> cst.CSTNode:
        """The call with the expression as its second argument."""
        fenced = self.fences > 1 and _is_fenced(inner)
        fenced = fenced or (self.fences > 0 and bool(getattr(inner, "lpar", ())))
        grouped = needs_group(inner)
        if grouped:
            inner = inner.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        first, hole, *rest = call.args
        call = call.with_changes(args=[first, hole.with_changes(value=inner), *rest])
        if fenced:
            call = call.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        self.woven.wraps.append(Wrap(self.woven.keep(call), self.woven.keep(inner), grouped))
        return call

    def join(
        self, body: Sequence[cst.CSTNode], old: Sequence[cst.CSTNode], changes: Sequence[Placed]
    ) -> list[cst.CSTNode]:
        """Small statements into a line; each new one brings its own semicolon."""
        last = body[-1]
        ends_open = isinstance(getattr(last, "semicolon", None), cst.Semicolon)
        row: list[tuple[cst.CSTNode, cst.CSTNode | None]] = []
        for spot in _spots(body, changes):
            row += [(new, None) for new in spot.before]
            row += [(new, spot.node) for new in spot.instead or (spot.node,)]
            row += [(new, None) for new in spot.after]
        out: list[cst.CSTNode] = []
        for number, (node, stood) in enumerate(row):
            is_last = number == len(row) - 1
            if node is stood:
                if node is last and not is_last and not ends_open:
                    semicolon = _separator()
                    self.woven.mark(semicolon)
                    node = node.with_changes(semicolon=semicolon)
                out.append(node)
                continue
            # With an open end (`a;`) the last one closes with a semicolon too, so that taking our
            # statements out can tell the file's semicolon from ours.
            closing = cst.Semicolon() if ends_open else cst.MaybeSentinel.DEFAULT
            new = node.with_changes(semicolon=closing if is_last else _separator())
            out.append(new if stood is not None else self.woven.mark(new))
            if stood is not None:
                self.replace(old[_index_of(body, stood)], new)
        return out

    def stack(
        self, body: Sequence[cst.CSTNode], old: Sequence[cst.CSTNode], changes: Sequence[Placed]
    ) -> list[cst.CSTNode]:
        """Lines into a block, between a statement and the comments above it."""
        out: list[cst.CSTNode] = []
        for number, spot in enumerate(_spots(body, changes)):
            new, node = [n.deep_clone() for n in spot.before], spot.node
            above = getattr(node, "leading_lines", ())
            left = len(above) if new else 0
            if new and above:
                own = getattr(new[0], "leading_lines", ())
                new[0] = new[0].with_changes(leading_lines=(*above, *own))
                self.woven.lines[id(new[0])] = id(above[-1])
                node, above = node.with_changes(leading_lines=()), ()
            out += map(self.woven.mark, new)
            instead = [n.deep_clone() for n in spot.instead]
            if instead:
                own = getattr(instead[0], "leading_lines", ())
                instead[0] = instead[0].with_changes(leading_lines=(*above, *own))
            for one in instead:
                self.replace(old[number], one, left)
            out += instead or [node]
            out += (self.woven.mark(n.deep_clone()) for n in spot.after)
        return out

    def replace(self, old: cst.CSTNode, new: cst.CSTNode, left: int = 0) -> None:
        """Note that a node stands, with those noted before it, in the place of an old one."""
        done = self.woven.replaced
        if done and done[-1].old == id(old):
            done[-1] = Replaced((*done[-1].new, self.woven.keep(new)), id(old), left)
        else:
            done.append(Replaced((self.woven.keep(new),), id(old), left))


def needs_group(node: cst.CSTNode) -> bool:
    """Whether an expression must get parentheses to be an argument: `a, b` and `yield x`."""
    return (
        isinstance(node, cst.Tuple | cst.Yield | cst.NamedExpr | cst.GeneratorExp) and not node.lpar
    )


def _is_fenced(node: cst.CSTNode) -> bool:
    """Whether an expression may touch the word beside it, as in `return(x)` and `[x]if y`."""
    code = cst.Module([]).code_for_node(node)
    return not (code[0] + code[-1]).isidentifier()


def _index_of(row: Sequence[cst.CSTNode], node: cst.CSTNode) -> int:
    return next(i for i, one in enumerate(row) if one is node)


def _separator() -> cst.Semicolon:
    return cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" "))


def _spots(body: Sequence[cst.CSTNode], changes: Sequence[Placed]) -> Iterator[_Spot]:
    sides: dict[tuple[int | None, str], list[cst.CSTNode]] = {}
    for change in changes:
        sides.setdefault((change.path[-1].index, change.side), []).extend(change.nodes)
    for index, node in enumerate(body):
        before, instead, after = (
            sides.get((index, side), ()) for side in ("before", "replace", "after")
        )
        yield _Spot(before, node, instead, after)
