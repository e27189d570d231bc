"""Checks the expressions of a probe against the names that its place really sees."""

from __future__ import annotations

import ast
import builtins
import contextlib
import symtable
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.errors import PatchError
from orchestrator.model.near import find_near
from orchestrator.model.patch import Capture, Probe
from orchestrator.model.source import Span
from orchestrator.patching.reading import kind_of
from orchestrator.patching.scope.names import names_bound, names_inside
from orchestrator.patching.scope.standing import Standing, class_of, mangled

# Calls that cost more than a look, by method name.
_COSTS = {
    "item": "waits for the device",
    "tolist": "waits for the device and copies the whole tensor",
    "cpu": "waits for the device and copies the whole tensor",
    "numpy": "waits for the device and copies the whole tensor",
    "float": "copies the whole tensor",
    "double": "copies the whole tensor",
    "clone": "copies the whole tensor",
    "contiguous": "may copy the whole tensor",
}
# What the expressions of a probe around an expression call the value that passes.
VALUE = "value"
# Every module has these although nothing in it binds them.
_MODULE_NAMES = frozenset({"__name__", "__file__", "__doc__", "__spec__", "__package__",
                           "__loader__", "__path__", "__builtins__", "__cached__"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Asked:
    """One expression of a probe with its label; `extra` names are the runtime's own."""

    label: str
    code: str
    span: Span | None
    extra: frozenset[str] = frozenset()


def check_captures(probe: Probe, standing: Standing, inner: str | None = None) -> tuple[str, ...]:
    """Warnings about a probe's expressions; raises `PatchError` with state `capture`.

    All expressions are checked; the first that cannot work is the error, the others its notes.
    `inner` is what the probe stands inside of where it sees none of the function's names.
    """
    problems: list[PatchError] = []
    found: list[str] = []
    if probe.takes_value and not inner and VALUE in (standing.state or {}):
        found.append(
            f"`{VALUE}` is the value that passes at line {standing.line}, not the name of the same "
            f"spelling in {standing.title}"
        )
    for asked in _asked(probe):
        try:
            found.extend(_check(asked, standing, inner))
        except PatchError as error:
            problems.append(error)
    if problems:
        first = problems[0]
        raise PatchError(
            first.message,
            state="capture",
            span=first.span,
            notes=[*first.notes, *(f"also: {p.message}" for p in problems[1:])],
            hints=first.hints,
        )
    return tuple(dict.fromkeys(found))


def sure_names(probe: Probe, standing: Standing) -> list[str]:
    """The function's own names, as the compiler knows them, that the expressions use and that are
    bound on every way to the place: reading them there cannot fail.
    """
    names = {mangled(n, class_of(standing)) for n in free_names(probe)}
    bound = standing.certain or {}
    return sorted(n for n in names if bound.get(n) and _is_own(_lookup(standing.table, n)))


def free_names(probe: Probe) -> set[str]:
    """The names that a probe's expressions take from their place, as they are written."""
    names: set[str] = set()
    for asked in _asked(probe):
        with contextlib.suppress(PatchError):
            names |= _free_names(_parse(asked)[1]) - asked.extra
    return names


def _is_own(symbol: symtable.Symbol | None) -> bool:
    return symbol is not None and symbol.is_local() and not symbol.is_declared_global()


def _asked(probe: Probe) -> Iterator[_Asked]:
    extra = frozenset({VALUE} if probe.takes_value else ())
    for capture in (*probe.capture, *probe.once_per):
        yield _of(capture.name, capture, extra)
    if probe.when is not None:
        yield _of("when", probe.when, extra)
    if probe.emit_if is not None:
        yield _of("emit_if", probe.emit_if, extra | {"stats"})
    for expectation in probe.expect:
        yield _Asked(expectation.name, expectation.that, expectation.span, extra)
        if expectation.when is not None:
            yield _Asked(expectation.name, expectation.when, expectation.span, extra)


def _of(label: str, capture: Capture, extra: frozenset[str]) -> _Asked:
    return _Asked(label, capture.expression, capture.span, extra)


def _check(asked: _Asked, standing: Standing, inner: str | None) -> Iterator[str]:
    tree, table = _parse(asked)
    _refuse_super(tree, asked)
    for name in sorted(_free_names(table) - asked.extra):
        if inner is not None and not _is_known_outside(name, standing):
            raise _refusal(
                asked,
                f"`{name}` is not known inside {inner}: only `{VALUE}` and the module's names are",
                hints=(f"wrap the whole {inner.partition(' ')[2]}, or probe at its statement",),
            )
        if inner is None:
            yield from _check_name(name, asked, standing)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            cost = _COSTS.get(node.func.attr)
            if cost:
                yield f"`{asked.code}`: `.{node.func.attr}()` {cost}"


def _parse(asked: _Asked) -> tuple[ast.Expression, symtable.SymbolTable]:
    text = f"({asked.code}\n)"  # as the runtime reads it, so that it may span lines
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(text, "<capture>", "eval")
            compile(tree, "<capture>", "eval")
            return tree, symtable.symtable(text, "<capture>", "eval")
        except (SyntaxError, ValueError) as error:
            reason = getattr(error, "msg", None) or str(error)
            raise _refusal(asked, f"`{asked.code}` cannot be evaluated: {reason}") from None


def _refuse_super(tree: ast.Expression, asked: _Asked) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "__class__":
            raise _refusal(
                asked,
                "`__class__` exists only in the code of a method, not where a probe evaluates",
                hints=("`type(self)` is the object's own class",),
            )
        is_super = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if is_super and node.func.id == "super" and not node.args:  # type: ignore[attr-defined]
            raise _refusal(
                asked,
                "`super()` without arguments works only in the code of a method",
                hints=("name both: `super(TheClass, self)`",),
            )


def _free_names(table: symtable.SymbolTable) -> set[str]:
    """The names that an expression takes from outside, its comprehensions and lambdas included."""
    names = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    if table.get_type() == "module":
        names |= {s.get_name() for s in table.get_symbols() if s.is_referenced()}
        names -= {s.get_name() for s in table.get_symbols() if s.is_assigned()}
    for child in table.get_children():
        names |= _free_names(child)
    return {n for n in names if not n.startswith(".")}


def _is_known_outside(name: str, standing: Standing) -> bool:
    """Whether the module itself binds a name, or Python does, and nothing in between."""
    if _is_bound_between(name, standing):
        return False
    module = standing.tables[0]
    known = _binds(_lookup(module, name)) or _is_global_elsewhere(module, name)
    return known or hasattr(builtins, name) or name in _MODULE_NAMES or _has_star(standing.module)


def _is_bound_between(name: str, standing: Standing) -> bool:
    """Whether a function around the place has the name, or a comprehension or lambda in the
    statement: that is what the name means there, and not the module's.
    """
    real = mangled(name, class_of(standing))
    for table in standing.tables[1:]:
        symbol = _lookup(table, real) if kind_of(table) == "function" else None
        if symbol is not None and (symbol.is_free() or _is_own(symbol)):
            return True
    return name in names_inside(standing.place)


def _check_name(name: str, asked: _Asked, standing: Standing) -> Iterator[str]:
    owner = class_of(standing)
    real = mangled(name, owner)
    symbol = _lookup(standing.table, real)
    is_function = standing.kind == "function"
    if standing.kind != "module":
        if symbol is not None and symbol.is_local():
            sure = (standing.state or {}).get(real)
            if sure is None and is_function:
                raise _refusal(asked, _why_unbound(name, real, standing))
            if sure is not None:
                yield from _unsure(name, sure, asked, standing)
                return
        if symbol is not None and symbol.is_free() and is_function:
            return
        _refuse_enclosing(name, real, symbol, asked, standing)
    yield from _check_global(name, real, asked, standing)


def _unsure(name: str, sure: bool, asked: _Asked, standing: Standing) -> Iterator[str]:
    if not sure:
        yield (
            f"`{name}` is bound on some ways only that lead to line {standing.line} of "
            f"{standing.title}: elsewhere `{asked.label}` is an error entry"
        )


def _why_unbound(name: str, real: str, standing: Standing) -> str:
    owner = class_of(standing)
    found = [(mangled(bound, owner), line) for bound, line in names_bound(standing.owner)]
    lines = [line for bound, line in found if bound == real]
    if lines and min(lines) >= standing.line:
        return (
            f"`{name}` is bound only later in {standing.title}, in line {min(lines)}: "
            f"the probe stands in line {standing.line}"
        )
    return f"`{name}` is bound on no way that leads to line {standing.line} of {standing.title}"


def _refuse_enclosing(
    name: str,
    real: str,
    symbol: symtable.Symbol | None,
    asked: _Asked,
    standing: Standing,
) -> None:
    """Names of an enclosing function are no globals, and `locals()` shows them only if used."""
    if symbol is not None and (symbol.is_declared_global() or symbol.is_local()):
        return
    for table, owner in zip(standing.tables[-2:0:-1], standing.names[-2::-1], strict=True):
        outer = _lookup(table, real)
        if kind_of(table) == "function" and outer is not None and outer.is_local():
            raise _refusal(
                asked,
                f"`{name}` belongs to the enclosing function `{owner}`: `locals()` does not show "
                f"it in {standing.title}, whose own code does not use it",
                hints=(f"probe in `{owner}`, where `{name}` is bound",),
            )


def _check_global(name: str, real: str, asked: _Asked, standing: Standing) -> Iterator[str]:
    module = standing.tables[0]
    symbol = _lookup(module, real)
    if _binds(symbol):
        if standing.kind == "module":
            sure = (standing.state or {}).get(real)
            if sure is None:
                raise _refusal(asked, _why_unbound(name, real, standing))
            yield from _unsure(name, sure, asked, standing)
        return
    if hasattr(builtins, name) or name in _MODULE_NAMES or _is_global_elsewhere(module, real):
        return
    if _has_star(standing.module):
        yield f"`{name}` may come from a `from ... import *`: not checked"
        return
    raise _refusal(
        asked,
        f"`{name}` is not bound in {standing.title}"
        + (", nor in its module" if standing.kind != "module" else ""),
        hints=_did_you_mean(name, real, standing),
    )


def _did_you_mean(name: str, real: str, standing: Standing) -> list[str]:
    hints = []
    for table in standing.tables[1:-1]:
        symbol = _lookup(table, real)
        if kind_of(table) == "class" and symbol is not None and symbol.is_local():
            hints.append(f"it is an attribute of the class: `{table.get_name()}.{name}`")
    local = [*(standing.state or {})]
    local += [s.get_name() for s in standing.table.get_symbols() if s.is_free()]
    module = [s.get_name() for s in standing.tables[0].get_symbols() if _binds(s)]
    for names in (local, module, dir(builtins)):
        near = find_near(name, names, 0.7)
        if near is not None:
            hints.append(f"did you mean `{near}`?")
            break
    return hints


def _is_global_elsewhere(table: symtable.SymbolTable, name: str) -> bool:
    """Whether some function declares the name `global` and binds it."""
    symbol = _lookup(table, name)
    if symbol is not None and symbol.is_declared_global() and _binds(symbol):
        return True
    return any(_is_global_elsewhere(child, name) for child in table.get_children())


def _has_star(module: ast.Module) -> bool:
    return any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in ast.walk(module))


def _lookup(table: symtable.SymbolTable, name: str) -> symtable.Symbol | None:
    try:
        return table.lookup(name)
    except KeyError:
        return None


def _binds(symbol: symtable.Symbol | None) -> bool:
    """Whether a scope's own code binds a name."""
    return symbol is not None and (symbol.is_assigned() or symbol.is_imported())


def _refusal(asked: _Asked, message: str, hints: Sequence[str] = ()) -> PatchError:
    return PatchError(message, state="capture", span=asked.span, hints=hints)
