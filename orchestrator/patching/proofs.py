"""Proofs that an edit does what it says and nothing else, before a byte of it travels."""

from __future__ import annotations

import ast
import hashlib
import symtable
import warnings
from collections.abc import Iterator, Sequence

from orchestrator.errors import PatchError
from orchestrator.model.plan import Insertion
from orchestrator.patching.making.removal import remove_ours
from orchestrator.patching.making.splice import remove_insertions
from orchestrator.patching.reading import read_python
from orchestrator.patching.source import Source

# The global names that a probe refers to; no other symbol may change.
_ALLOWED = frozenset({"_sgldbg", "locals", "dict"})


def prove(
    source: Source,
    after: bytes,
    insertions: Sequence[Insertion],
    *,
    probes_only: bool,
    lines_stay: bool,
    imported: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """Warnings about what cannot be proven here or what inserted code changes.

    Raises `PatchError` with state `proof` where (1) taking the insertions out does not give the
    original bytes, (2) the tree without our statements differs from the original's, with its line
    numbers if they are to stay, (3) a scope's names differ, or (4) it does not compile. With code
    of the user's among the insertions, 2 is left out and 3 is told instead of refused; names that
    the module gets because imports of them were `imported` are not worth a word.
    """
    back = remove_insertions(after, insertions)
    if back is None or hashlib.sha256(back).digest() != hashlib.sha256(source.data).digest():
        raise _failed(source, "taking the insertions out does not give the original bytes")
    if source.reading is None:
        if probes_only and remove_ours(after, source.file).data != source.data:
            raise _failed(source, "the code without the probes is not the original code")
        return (
            f"`{source.file}` is not syntax that this Python reads: names and syntax of its edits "
            "are left to the interpreter on the host",
        )
    reading = read_python(after)
    _compile(source, after)
    if reading is None:
        raise _failed(source, "the result cannot be read back")
    if probes_only:
        if not _same_tree(source.reading.tree, reading.tree, lines=lines_stay):
            raise _failed(source, "the code without the probes is not the original code")
        for change in _changed_names(source.reading.table, reading.table):
            raise _failed(source, f"the edit changes what names mean: {change}")
        return ()
    asked = {f"`{name}` in the module is local, was not there" for name in imported}
    found = dict.fromkeys(_changed_names(source.reading.table, reading.table))
    changes = [change for change in found if change not in asked]
    return tuple(f"inserted code in `{source.file}`: {change}" for change in changes)


def _compile(source: Source, after: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file's own warnings are not ours to repeat
        try:
            compile(after, source.file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f" in line {line}" if line else ""
            raise _failed(
                source, f"the result does not compile: {getattr(error, 'msg', error)}{where}"
            ) from None


def _failed(source: Source, why: str) -> PatchError:
    return PatchError(
        f"the edit of `{source.file}` was refused: {why}",
        state="proof",
        notes=("nothing was changed",),
        file=source.file,
    )


def _same_tree(old: ast.AST, new: ast.AST, *, lines: bool) -> bool:
    """Whether two trees are equal but for our statements in the new one."""
    waiting: list[tuple[object, object]] = [(old, new)]
    while waiting:
        one, other = waiting.pop()
        other = _untapped(other)
        if type(one) is not type(other):
            return False
        if isinstance(one, ast.AST):
            if lines and getattr(one, "lineno", 0) != getattr(other, "lineno", 0):
                return False
            waiting.extend((getattr(one, f, None), getattr(other, f, None)) for f in one._fields)
        elif isinstance(one, list) and isinstance(other, list):
            kept = [n for n in other if not is_ours(n)]
            if len(one) != len(kept):
                return False
            waiting.extend(zip(one, kept, strict=True))
        elif one != other:
            return False
    return True


def is_ours(node: object) -> bool:
    """Whether a statement of `ast` is a probe or the import of the runtime."""
    if isinstance(node, ast.ImportFrom):
        return [(a.name, a.asname) for a in node.names] == [("_sgldbg", None)]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        # Where nothing is returned, `None` is what passes.
        value = _tapped(node.value)
        return isinstance(value, ast.Constant) and value.value is None
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.BoolOp):
        return False
    return [_method(v) for v in node.value.values] == ["off", "hit"]


def _tapped(node: object) -> ast.expr | None:
    """The expression that a call of ours stands around, if the node is one."""
    if not isinstance(node, ast.Call) or _method(node) not in ("tap", "tap_group"):
        return None
    return node.args[1] if len(node.args) == 3 and not node.keywords else None


def _untapped(node: object) -> object:
    """What stands inside all the calls of ours around an expression."""
    inner = _tapped(node)
    while inner is not None:
        node, inner = inner, _tapped(inner)
    return node


def _method(node: ast.expr) -> str | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    owner = node.func.value
    return node.func.attr if isinstance(owner, ast.Name) and owner.id == "_sgldbg" else None


def _changed_names(
    old: symtable.SymbolTable, new: symtable.SymbolTable, scope: str = "the module"
) -> Iterator[str]:
    """How the names of two tables of scopes differ, in words."""
    before, after = _names(old), _names(new)
    for name in sorted({*before, *after} - _ALLOWED):
        was, now = before.get(name), after.get(name)
        if was != now and (was, now) != (None, "global"):  # a mere mention
            yield f"`{name}` in {scope} is {now or 'gone'}, was {was or 'not there'}"
    for name in sorted(_ALLOWED & {*after}):
        # The module binds the runtime by the import; elsewhere our names are only looked up.
        bound = after[name].startswith(("local", "parameter", "free"))
        if bound and before.get(name) != after[name] and new.get_type() != "module":
            yield f"`{name}` in {scope} is {after[name]}"
    olds, news = old.get_children(), new.get_children()
    if [c.get_name() for c in olds] != [c.get_name() for c in news]:
        yield f"the scopes inside {scope} are not the same"
        return
    for one, other in zip(olds, news, strict=True):
        yield from _changed_names(one, other, f"`{other.get_name()}`")


def _names(table: symtable.SymbolTable) -> dict[str, str]:
    """What each name of a scope is, in a word, with whether the scope binds it."""
    return {s.get_name(): _word(s) for s in table.get_symbols()}


def _word(symbol: symtable.Symbol) -> str:
    if symbol.is_parameter():
        return "parameter"
    if symbol.is_free():
        return "free"
    if symbol.is_declared_global():
        return "declared global"
    if symbol.is_local():
        return "local"
    return "global, bound" if symbol.is_assigned() else "global"
