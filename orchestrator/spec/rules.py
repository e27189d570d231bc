"""Rules of a patch that tie several keys together.

They look at the plain values, whatever else is wrong with them, so that all problems of a file
come in one go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.errors import FileError
from orchestrator.spec.document import Document, Int, Place
from orchestrator.spec.problems import find_near

_ACTIONS = ("probe", "insert")
_LATER_ACTIONS = ("replace", "delete", "wrap", "decorate", "return", "import")
_POSITIONS = ("before", "after", "at")
_LATER_POSITIONS = ("replace", "delete")


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
    yield from _one_of(document, place, edit, "an edit", "an action", _ACTIONS, _LATER_ACTIONS)
    where = edit.get("where")
    if isinstance(where, dict):
        yield from _where(document, (*place, "where"), where, package)
    for index, item in enumerate(where if isinstance(where, list) else ()):
        if isinstance(item, dict):
            yield from _where(document, (*place, "where", index), item, package)
    probe = edit.get("probe")
    for key in ("capture", "once_per"):
        items = probe.get(key) if isinstance(probe, dict) else None
        yield from _labels(document, (*place, "probe", key), items)


def _where(
    document: Document, place: Place, where: dict[str, Any], package: Any
) -> Iterator[FileError]:
    yield from _one_of(document, place, where, "a place", "a source", ("file", "module"))
    yield from _one_of(
        document, place, where, "a place", "a position", _POSITIONS, _LATER_POSITIONS
    )
    yield from _inside(document, place, where, package)
    if "at" in where:
        if "in" not in where:
            message = "`at` needs `in`: the function at whose start the edit goes"
            yield FileError(message, span=document.key_span((*place, "at")))
        for key in ("occurrence", "of", "within"):
            if key in where:
                message = f"`{key}` selects among statements; `at` names none"
                yield FileError(message, span=document.key_span((*place, key)))
        return
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
    later: tuple[str, ...] = (),
) -> Iterator[FileError]:
    """Exactly one of these keys is there; a misspelt or later one is reported elsewhere."""
    found = [key for key in mapping if key in keys]
    for key in found[1:]:
        message = f"{noun} has one {role.split()[-1]}; `{found[0]}` is there already"
        yield FileError(message, span=document.key_span((*place, key)))
    others = [key for key in mapping if key not in keys]
    if found or any(key in later or find_near(key, keys) for key in others):
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
