"""What Python's own compiler says of a source: its tree and its tables of names."""

from __future__ import annotations

import ast
import symtable
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from orchestrator.patching.scope.names import names_swallowing


@dataclass(frozen=True)
class Reading:
    """A source as this Python reads it."""

    tree: ast.Module
    table: symtable.SymbolTable

    @cached_property
    def statements(self) -> Mapping[tuple[int, int], ast.stmt]:
        """Every statement by its line (from 1) and column (from 0, in UTF-8 bytes)."""
        found: dict[tuple[int, int], ast.stmt] = {}
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            for child in ast.iter_child_nodes(waiting.pop()):
                if isinstance(child, ast.stmt):
                    found[child.lineno, child.col_offset] = child
                elif not isinstance(child, ast.ExceptHandler | ast.match_case):
                    continue  # no statement stands in an expression
                waiting.append(child)
        return found

    @cached_property
    def swallowing(self) -> frozenset[str]:
        """The names by which the file knows `contextlib.suppress`, and what it makes with it."""
        return names_swallowing(self.tree)

    def tables_of(self, scopes: list[tuple[str, int]]) -> list[symtable.SymbolTable] | None:
        """The tables from the module down along definitions given by name and line of `def`."""
        tables = [self.table]
        for name, line in scopes:
            inner = _child_table(tables[-1], name, line)
            if inner is None:
                return None
            tables.append(inner)
        return tables


def _child_table(table: symtable.SymbolTable, name: str, line: int) -> symtable.SymbolTable | None:
    for child in table.get_children():
        if kind_of(child) not in ("function", "class"):
            # Type parameters (3.12) put a table of their own around the definition's.
            inner = _child_table(child, name, line)
            if inner is not None:
                return inner
        elif child.get_name() == name and child.get_lineno() == line:
            return child
    return None


def kind_of(table: symtable.SymbolTable) -> str:
    """`module`, `function`, `class` or another kind of scope that a later Python may know."""
    kind = table.get_type()
    return str(getattr(kind, "value", kind))  # an enum from 3.13 on


def read_python(source: bytes | str) -> Reading | None:
    """Parse with this Python's compiler; `None` where it refuses, as for newer syntax."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file's own warnings are not ours to repeat
        try:
            return Reading(
                ast.parse(source),
                symtable.symtable(source, "<source>", "exec"),  # type: ignore[arg-type]
            )
        except (SyntaxError, ValueError, UnicodeError):
            return None
