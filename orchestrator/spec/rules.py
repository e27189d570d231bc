"""Rules of a patch that tie several keys together.

They look at the plain values, whatever else is wrong with them, so that all problems of a file
come in one go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.errors import FileError
from orchestrator.model.near import find_near
from orchestrator.spec.code import find_metavariables
from orchestrator.spec.document import Document, Int, Place

_ACTIONS = ("probe", "insert", "replace", "delete", "return", "wrap", "decorate", "import")
_POSITIONS = ("before", "after", "at", "replace", "delete", "wrap")
# What each action needs of its place; the others go beside a statement.
_NEEDS = {
    "replace": "replace",
    "delete": "delete",
    "wrap": "wrap",
    "return": "at",
}
_ANYWHERE = ("decorate", "import")
_WAYS_OUT = ("return", "raise")


def check_edits(document: Document) -> Iterator[FileError]:
    """Everything that no key of an edit shows by itself."""
    top = document.value if isinstance(document.value, dict) else {}
    package = top.get("package", "sglang")
    edits = top.get("edits")
    for index, edit in enumerate(edits if isinstance(edits, list) else ()):
        if isinstance(edit, dict):
            yield from _edit(document, ("edits", index), edit, package)


def _edit(
    document: Document, place: Place, edit: dict[str, Any], package: Any
) -> Iterator[FileError]:
    yield from _one_of(document, place, edit, "an edit", "an action", _ACTIONS)
    actions = [key for key in edit if key in _ACTIONS]
    action = str(actions[0]) if len(actions) == 1 else ""
    where = edit.get("where")
    if isinstance(where, dict):
        yield from _where(document, (*place, "where"), where, package, action)
        yield from _unbound(document, place, edit, where)
    for index, item in enumerate(where if isinstance(where, list) else ()):
        if isinstance(item, dict):
            yield from _where(document, (*place, "where", index), item, package, action)
            yield from _unbound(document, place, edit, item, index + 1)
    for key in ("probe", "return", "wrap"):
        yield from _probe(document, (*place, key), edit.get(key))


def _probe(document: Document, place: Place, probe: Any) -> Iterator[FileError]:
    for key in ("capture", "once_per"):
        items = probe.get(key) if isinstance(probe, dict) else None
        yield from _labels(document, (*place, key), items)


def _unbound(
    document: Document, place: Place, edit: dict[str, Any], where: dict[str, Any], number: int = 0
) -> Iterator[FileError]:
    """Metavariables of the code that replaces which the place does not have."""
    anchor, code = where.get("replace"), edit.get("replace")
    if not isinstance(anchor, str) or not isinstance(code, str):
        return
    known = find_metavariables(anchor)
    for name in find_metavariables(code):
        if name not in known or name.strip("$") in ("", "_"):
            named = [f"`{n}`" for n in known if n.strip("$") not in ("", "_")]
            hint = f"the place has {', '.join(named)}" if named else "give the place one: `$NAME`"
            which = f"place {number}" if number else "the place"
            message = f"`{name}` stands for nothing that {which} names"
            span = document.value_span((*place, "replace"))
            yield FileError(message, span=span, hints=[hint])


def _where(
    document: Document, place: Place, where: dict[str, Any], package: Any, action: str
) -> Iterator[FileError]:
    yield from _one_of(document, place, where, "a place", "a source", ("file", "module"))
    yield from _inside(document, place, where, package)
    if action in _ANYWHERE:
        yield from _no_position(document, place, where, action)
        return
    yield from _one_of(document, place, where, "a place", "a position", _POSITIONS)
    yield from _goes_with(document, place, where, action)
    if "at" in where and "in" not in where:
        message = "`at` needs `in`: the function that it is a place of"
        yield FileError(message, span=document.key_span((*place, "at")))
    if "at" in where and where["at"] not in _WAYS_OUT:
        for key in ("occurrence", "of", "within"):
            if key in where:
                message = f"`{key}` selects among statements; `at: {where['at']}` names none"
                yield FileError(message, span=document.key_span((*place, key)))
        return
    yield from _counted(document, place, where)


def _no_position(
    document: Document, place: Place, where: dict[str, Any], action: str
) -> Iterator[FileError]:
    """`decorate` names a definition, `import` a file, and that is all of their place."""
    allowed = ("file", "module", *(("in", "which") if action == "decorate" else ()))
    for key in where:
        if key in (*_POSITIONS, "in", "which", "within", "occurrence", "of") and (
            key not in allowed
        ):
            what = "a definition: `file` and `in`" if action == "decorate" else "a file alone"
            message = f"the place of `{action}` is {what}"
            yield FileError(message, span=document.key_span((*place, key)))
    if action == "decorate" and "in" not in where:
        span = document.value_span(place)
        yield FileError("`decorate` needs `in`: the function or class", span=span)


def _goes_with(
    document: Document, place: Place, where: dict[str, Any], action: str
) -> Iterator[FileError]:
    """Each action has its own kind of place."""
    positions = [key for key in where if key in _POSITIONS]
    if not action or len(positions) != 1:
        return
    position, needed = positions[0], _NEEDS.get(action)
    span = document.key_span((*place, position))
    if action == "return" and position == "at" and where["at"] != "return":
        message = (
            f"`return` looks at returned values: its place is `at: return`, not `at: {where['at']}`"
        )
        yield FileError(message, span=span)
    elif needed is not None and position != needed:
        right = "at: return" if action == "return" else needed
        yield FileError(f"the place of `{action}` is `{right}`, not `{position}`", span=span)
    elif needed is None and position in _NEEDS.values() and position != "at":
        yield FileError(f"the action that goes with `{position}` is `{position}`", span=span)


def _counted(document: Document, place: Place, where: dict[str, Any]) -> Iterator[FileError]:
    """`occurrence` and `of` must agree."""
    occurrence, of = where.get("occurrence"), where.get("of")
    if "of" in where and "occurrence" not in where:
        hint = "add `occurrence`: a number, `last` or `all`"
        span = document.key_span((*place, "of"))
        yield FileError("`of` goes with `occurrence`", span=span, hints=[hint])
    if "of" not in where and (isinstance(occurrence, Int) or occurrence == "all"):
        hint = "add `of`: how many equal statements there are"
        span = document.key_span((*place, "occurrence"))
        yield FileError("`occurrence` needs `of`", span=span, hints=[hint])
    if isinstance(occurrence, Int) and isinstance(of, Int) and occurrence > of >= 1:
        span = document.value_span((*place, "occurrence"))
        yield FileError(f"there is no occurrence {occurrence} of {of}", span=span)


def _inside(
    document: Document, place: Place, where: dict[str, Any], package: Any
) -> Iterator[FileError]:
    """A place outside the package would be outside of what a session may change."""
    for key, separator in (("file", "/"), ("module", ".")):
        name = where.get(key)
        if not isinstance(name, str) or not isinstance(package, str):
            continue
        if separator in name.strip("/.") and not name.startswith(
            (f"{package}{separator}", "/", ".")
        ):
            span = document.value_span((*place, key))
            hint = f"begin it with `{package}{separator}`"
            message = f"`{name}` is outside of package `{package}`"
            yield FileError(message, span=span, hints=[hint])


def _one_of(
    document: Document,
    place: Place,
    mapping: dict[str, Any],
    noun: str,
    role: str,
    keys: tuple[str, ...],
) -> Iterator[FileError]:
    """Exactly one of these keys is there; a misspelt one is reported elsewhere."""
    found = [key for key in mapping if key in keys]
    for key in found[1:]:
        message = f"{noun} has one {role.split()[-1]}; `{found[0]}` is there already"
        yield FileError(message, span=document.key_span((*place, key)))
    others = [key for key in mapping if key not in keys]
    if found or any(find_near(key, keys) for key in others):
        return
    choice = ", ".join(f"`{key}`" for key in keys[:-1]) + f" or `{keys[-1]}`"
    span = document.value_span(place)
    yield FileError(f"{noun} needs {role}: {choice}", span=span)


def _labels(document: Document, place: Place, items: Any) -> Iterator[FileError]:
    seen: set[str] = set()
    for index, item in enumerate(items if isinstance(items, list) else ()):
        names = list(item) if isinstance(item, dict) else [item] if isinstance(item, str) else []
        for name in names:
            if name in seen:
                hints = ["give one of them another name: `name: expression`"]
                span = document.key_span(
                    (*place, index, *([name] if isinstance(item, dict) else []))
                )
                yield FileError(f"`{name}` is captured twice", span=span, hints=hints)
            seen.add(name)
