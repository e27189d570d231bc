"""What Python knows of the scope in which a place stands: its tables, its tree, what is bound."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.patching.reading import kind_of
from orchestrator.patching.scope.flow import State, bound_at
from orchestrator.patching.scope.names import names_gone, names_gone_inside
from orchestrator.patching.source import Source
from orchestrator.patching.structure.place import Place

# Code of a function that uses one of these may hold the dict from `locals()` itself.
_READS_LOCALS = frozenset({"locals", "vars", "eval", "exec"})
_READS_FRAMES = frozenset({"f_locals", "_getframe", "currentframe"})


@dataclass(frozen=True)
class Standing:
    """The scope around one place. `tables` and `names` go from the module down to that scope."""

    tables: tuple[symtable.SymbolTable, ...]
    names: tuple[str, ...]
    module: ast.Module
    owner: ast.AST
    state: State
    place: ast.stmt
    side: str

    @property
    def line(self) -> int:
        """The line of the statement at which the place is."""
        return self.place.lineno

    @property
    def certain(self) -> State:
        """What is bound, where nothing but what cannot fail counts as bound on every way."""
        state = bound_at(self.owner, self.place, self.side, strict=True)
        gone = names_gone_inside(self.owner)  # which may be called anywhere
        if isinstance(self.place, ast.While):  # an expression of its header is evaluated each turn
            gone |= names_gone(self.place)
        state = {n: sure and n not in gone for n, sure in (state or {}).items()}
        return _mangled_all(state, _class_name(self.tables))

    @property
    def table(self) -> symtable.SymbolTable:
        """The scope's own table of names."""
        return self.tables[-1]

    @property
    def kind(self) -> str:
        """`module`, `class` or `function`."""
        return kind_of(self.table)

    @property
    def title(self) -> str:
        """The scope in words, for messages."""
        return f"`{'.'.join(self.names)}`" if self.names else "the module"


def find_standing(source: Source, place: Place) -> Standing | None:
    """What is known of a place, or `None` where this Python cannot read the file's syntax."""
    reading = source.reading
    if reading is None:
        return None
    scopes = place.statement.definitions()
    tables = reading.tables_of([(d.name.value, source.line_of(d)) for d in scopes])
    statement = reading.statements.get(source.place_of(place.statement.node))
    owner = reading.statements.get(source.place_of(scopes[-1])) if scopes else reading.tree
    if tables is None or statement is None or owner is None:
        return None
    # An expression, or what takes a statement's place, sees what is bound before the statement.
    side = "after" if place.side == "after" else "before"
    # A walk over the whole file, which hardly any needs.
    swallowing = reading.swallowing if b"suppress" in source.data else ()
    state = bound_at(owner, statement, side, swallowing=swallowing)
    state = _mangled_all(state, _class_name(tables))
    names = tuple(d.name.value for d in scopes)
    return Standing(tuple(tables), names, reading.tree, owner, state, statement, side)


def _mangled_all(state: State, class_name: str | None) -> State:
    return None if state is None else {mangled(n, class_name): sure for n, sure in state.items()}


def class_of(standing: Standing) -> str | None:
    """The innermost class around a place, by whose name the compiler mangles `__private` names."""
    return _class_name(standing.tables)


def _class_name(tables: Sequence[symtable.SymbolTable]) -> str | None:
    return next((t.get_name() for t in reversed(tables) if kind_of(t) == "class"), None)


def mangled(name: str, class_name: str | None) -> str:
    """The name as the compiler knows it inside that class."""
    owner = (class_name or "").lstrip("_")
    private = name.startswith("__") and not name.endswith("__")
    return f"_{owner}{name}" if private and owner else name


def may_clear_locals(standing: Standing) -> bool:
    """Whether nobody else holds the dict from `locals()`, so that it may be emptied after use."""
    if standing.kind != "function":
        return False
    for node in ast.walk(standing.owner):
        if isinstance(node, ast.Name) and node.id in _READS_LOCALS | _READS_FRAMES:
            return False
        if isinstance(node, ast.Attribute) and node.attr in _READS_FRAMES:
            return False
    return True
