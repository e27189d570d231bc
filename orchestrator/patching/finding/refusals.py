"""Places where an edit would be wrong although the anchor fits: refused, with a way out."""

from __future__ import annotations

import symtable

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.source import Span
from orchestrator.patching.scope.names import names_inside
from orchestrator.patching.scope.standing import Standing, find_standing
from orchestrator.patching.source import Source
from orchestrator.patching.structure.place import Place, is_future
from orchestrator.patching.structure.walk import (
    Definition,
    decorator_names,
    docstring_of,
    dotted_name,
    walk_block,
)

# Decorators that parse a function's source, or compile it themselves, by the end of their dotted
# name. Both the usual names of their modules and the usual short ones are here.
_PARSERS = frozenset(
    f"{module}.{name}"
    for modules, names in (
        ("triton gluon", "jit autotune heuristics"),
        ("jit torch.jit", "script script_method interface"),
        ("numba nb", "jit njit vectorize guvectorize stencil generated_jit"),
        ("cuda numba.cuda", "jit"),
        ("cute cutlass cutlass.cute cute.experimental flyc", "jit kernel"),
        ("tilelang", "jit"),
        ("T tir", "prim_func macro"),
        ("wp warp ti taichi helion pl", "kernel func"),
    )
    for module in modules.split()
    for name in names.split()
)
# These are unmistakable also when imported by their bare name.
_BARE = frozenset({"njit", "guvectorize", "prim_func"})
_TERMINAL = {
    cst.Return: "return", cst.Raise: "raise", cst.Break: "break", cst.Continue: "continue",
}  # fmt: skip


def refuse_place(source: Source, place: Place, span: Span | None) -> None:
    """Raise `PatchError` (state `refused`) where nothing may be put at this place at all."""
    node = place.statement.node
    line = source.line_of(node)
    if place.side == "after" and type(node) in _TERMINAL:
        word = _TERMINAL[type(node)]
        raise _refusal(
            source, span, f"nothing after the `{word}` in line {line} is ever reached",
            f"put it before the `{word}`: `before` in the place of `after`",
        )  # fmt: skip
    if place.side == "wrap" and _is_docstring(source, place):
        raise _refusal(
            source, span, f"a call around the docstring in line {line} would end its role", None
        )  # fmt: skip
    if place.side == "before" and _is_docstring(source, place):
        raise _refusal(
            source, span, f"a statement before the docstring in line {line} would end its role",
            "put it behind: `at: start`",
        )  # fmt: skip
    beside = place.side in ("before", "after")
    future = _future_behind(source, place) if beside else None
    if future is not None:
        raise _refusal(
            source, span, f"nothing but a docstring may stand before `{future}`",
            "put it behind: `at: start`",
        )  # fmt: skip
    _refuse_parsed(source, place, span)


def _is_docstring(source: Source, place: Place) -> bool:
    scopes = place.statement.definitions()
    body = scopes[-1].body if scopes else source.module
    return docstring_of(body) is place.statement.node


def _future_behind(source: Source, place: Place) -> str | None:
    """An import from `__future__` that the place would come before, if there is one."""
    if place.statement.definitions():
        return None
    nodes = [s.node for s in walk_block(source.module, (), nested=False)]
    index = next(i for i, node in enumerate(nodes) if node is place.statement.node)
    for node in nodes[index + (place.side == "after") :]:
        if is_future(node):
            return source.module.code_for_node(node).strip().rstrip("; ")
    return None


def is_reached(source: Source, place: Place) -> bool:
    """Whether a way leads to a place; so it is with any whose statement goes, which runs nowhere
    anyhow, and wherever it cannot be told.
    """
    if place.side == "replace":
        return True
    standing = find_standing(source, place)
    return standing is None or standing.state is not None


def refuse_unreachable(
    source: Source, place: Place, standing: Standing | None, span: Span | None
) -> None:
    """Raise where no way through the scope's statements leads to this place."""
    if standing is not None and standing.state is None:
        line = source.line_of(place.statement.node)
        raise _refusal(
            source, span, f"no way leads to the place {place.side} line {line}", None
        )  # fmt: skip


def _refuse_parsed(source: Source, place: Place, span: Span | None) -> None:
    names = None
    scopes = place.statement.definitions()
    if place.side == "decorate" and isinstance(place.statement.node, Definition):
        scopes = (*scopes, place.statement.node)
    for scope in scopes:
        marks = decorator_names(scope)
        if not marks and names is not None:
            continue
        names = names if names is not None else _imported(source.module)
        for mark in marks:
            if _parses(mark, names):
                raise _parsed(source, span, scope, f"`@{mark}`")
    for scope in scopes:
        callee = _passed_to_parser(source, scope.name.value, names or {})
        if callee:
            raise _parsed(source, span, scope, f"`{callee}(...)`")


def _parsed(source: Source, span: Span | None, scope: Definition, by: str) -> PatchError:
    return _refusal(
        source, span, f"`{scope.name.value}` is compiled from its source by {by}: it would not run "
        "what we put in", f"probe where `{scope.name.value}` is called",
    )  # fmt: skip


def _parses(name: str, imported: dict[str, str]) -> bool:
    first, _, rest = name.partition(".")
    full = imported.get(first, first) + (f".{rest}" if rest else "")
    for candidate in (name, full):
        parts = candidate.split(".")
        if any(".".join(parts[i:]) in _PARSERS for i in range(len(parts) - 1)):
            return True
    return name in _BARE


def _imported(module: cst.Module) -> dict[str, str]:
    """What the file's imports, wherever they stand, bind to which dotted name."""
    names: dict[str, str] = {}
    for statement in walk_block(module, (), nested=True):
        node = statement.node
        if not isinstance(node, cst.Import | cst.ImportFrom) or isinstance(
            node.names, cst.ImportStar
        ):
            continue
        base = ""
        if isinstance(node, cst.ImportFrom) and node.module is not None:
            base = (dotted_name(node.module) or "") + "."
        for alias in node.names:
            name = dotted_name(alias.name) or ""
            if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                names[alias.asname.name.value] = base + name
            elif base:
                names[name] = base + name
    return names


def _passed_to_parser(source: Source, name: str, imported: dict[str, str]) -> str | None:
    """The parser that a file hands this function to by a plain call, as in `f = script(f)`."""
    if b"jit" not in source.data:
        return None
    imported = imported or _imported(source.module)
    for statement in walk_block(source.module, (), nested=True):
        node = statement.node
        value = getattr(node, "value", None)
        if not isinstance(value, cst.Call) or not value.args:
            continue
        callee, first = dotted_name(value.func), value.args[0].value
        handed = dotted_name(first) if not isinstance(first, cst.Call) else None
        if callee and handed == name and _parses(callee, imported):
            return callee
    return None


def refuse_bound_names(
    source: Source, standing: Standing | None, place: Place, used: frozenset[str], span: Span | None
) -> None:
    """Raise where one of the `used` names means something else at this place."""
    if standing is None:
        scopes = place.statement.definitions() or (source.module,)
        taken = used & (_names_unclear(scopes[0]) | _names_global(source.module))
    else:
        taken = frozenset(n for n in used if _is_taken(n, standing))
    for name in sorted(taken):
        raise _refusal(
            source, span, f"`{name}` is bound by the file itself where the probe would use it",
            "probe in a function that calls this one",
        )  # fmt: skip
    if standing is not None:
        _refuse_bound_around(source, standing, place, used, span)


def _refuse_bound_around(
    source: Source, standing: Standing, place: Place, used: frozenset[str], span: Span | None
) -> None:
    """The same for names that a lambda or comprehension of the statement binds, or a `global`
    somewhere in the file.
    """
    inside = names_inside(standing.place) if place.expression and place.expression.inner else set()
    for name in sorted(used):
        if name in inside:
            line = source.line_of(place.statement.node)
            raise _refusal(
                source, span, f"`{name}` is bound by the lambda or comprehension in line {line} "
                "where the probe would use it", "wrap the whole of it, or probe at its statement",
            )  # fmt: skip
        owner = _global_binder(standing.tables[0], name)
        if owner is not None:
            line = owner.get_lineno()
            raise _refusal(
                source, span, f"`{name}`, which the probe would use, is bound as a global in "
                f"`{owner.get_name()}`, line {line}", None,
            )  # fmt: skip


def _is_taken(name: str, standing: Standing) -> bool:
    for table in standing.tables:
        if name in table.get_identifiers():
            symbol = table.lookup(name)
            if symbol.is_assigned() or symbol.is_parameter() or symbol.is_imported():
                return True
    return False


def _global_binder(table: symtable.SymbolTable, name: str) -> symtable.SymbolTable | None:
    """The first scope inside this one that declares a name `global` and binds it."""
    for child in table.get_children():
        if name in child.get_identifiers():
            symbol = child.lookup(name)
            if symbol.is_declared_global() and (symbol.is_assigned() or symbol.is_imported()):
                return child
        found = _global_binder(child, name)
        if found is not None:
            return found
    return None


def _names_unclear(scope: cst.CSTNode) -> frozenset[str]:
    """All names inside that may be bound there: without tables, too many.

    Left out is what only reads one: a call, an annotation, the end of an attribute.
    """
    found: set[str] = set()
    waiting = [scope]
    while waiting:
        node = waiting.pop()
        if isinstance(node, cst.Name):
            found.add(node.value)
        skip: cst.CSTNode | None = None
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
            skip = node.func
        elif isinstance(node, cst.Attribute):
            skip = node.attr
        waiting.extend(
            c for c in node.children if c is not skip and not isinstance(c, cst.Annotation)
        )
    return frozenset(found)


def _names_global(module: cst.Module) -> frozenset[str]:
    """What some function of a file declares `global`, and so may bind for all of it."""
    found: set[str] = set()
    waiting: list[cst.CSTNode] = [module]
    while waiting:
        node = waiting.pop()
        if isinstance(node, cst.Global):
            found |= {item.name.value for item in node.names}
        waiting.extend(node.children)
    return frozenset(found)


def _refusal(source: Source, span: Span | None, message: str, hint: str | None) -> PatchError:
    return PatchError(
        message, state="refused", span=span, hints=(hint,) if hint else (), file=source.file
    )
