"""From what pydantic reports to problems in our words, at their places in the file."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.errors import FileError, FileErrors
from orchestrator.model.near import find_near
from orchestrator.spec.document import Document, Float, Int, Place
from orchestrator.spec.fields import Strict
from orchestrator.spec.reader import sort_problems

M = TypeVar("M", bound=Strict)

# The key that only files of this kind have at the top.
MARKS = {"a patch": "patch", "a session": "session", "an inventory": "hosts"}
_USES = {
    "a patch": "name it in `patches` of a session, and run that",
    "a session": "`sgldbg run` takes it",
    "an inventory": "it is named with `--inventory`",
}
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "bool_type": "`true` or `false`",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
}


def suggest(word: str, known: Iterable[str]) -> list[str]:
    """A hint that names the nearest known word, or nothing."""
    near = find_near(word, known)
    return [f"did you mean `{near}`?"] if near else []


def validate(
    model: type[M],
    document: Document,
    problems: list[FileError],
    may_be_empty: Callable[[Place], bool] = lambda place: False,
) -> M | None:
    """The file as `model`; `None`, with everything that is wrong added to `problems`.

    A key without a value is a mistake, but for places that `may_be_empty`. A file of another kind
    is the one mistake that counts: it raises `FileErrors` at once.
    """
    _require_kind(model, document)
    if not isinstance(document.value, dict):
        message = f"{model.noun} is a mapping of keys to values"
        problems.append(FileError(message, span=document.values[()]))
        return None
    empty = {p for p, s in document.scalars.items() if s.is_null() and not may_be_empty(p)}
    problems += [_empty(document, place) for place in empty]
    try:
        found = model.model_validate(document.value)
    except ValidationError as failure:
        errors = failure.errors(include_url=False)
    else:
        return None if empty else found
    meant = {m for error in errors if (m := _meant_key(model, document, error))}
    for error in errors:
        place = _place(document, error["loc"])
        if error["type"] == "missing" and (*place, error["loc"][-1]) in meant:
            continue  # the misspelt key is reported, with this one as the hint
        if place not in empty or error["type"] == "extra_forbidden":
            problems.append(_explain(model, document, error, place))
    return None


def _require_kind(model: type[Strict], document: Document) -> None:
    keys = document.value if isinstance(document.value, dict) else {}
    if MARKS.get(model.noun, "") in keys:
        return
    for noun, mark in MARKS.items() if model.noun in MARKS else ():
        if mark in keys:
            message = f"this is {noun}, not {model.noun}"
            span = document.key_span((mark,))
            raise FileErrors([FileError(message, span=span, hints=[_USES[noun]])])


def _empty(document: Document, place: Place) -> FileError:
    return FileError(f"{_subject(place)} is empty", span=document.key_span(place))


def raise_problems(problems: list[FileError]) -> None:
    """Raise all problems in order of place, if there are any."""
    if problems:
        raise FileErrors(sort_problems(problems))


def _explain(root: type[Strict], document: Document, error: Any, place: Place) -> FileError:
    kind, loc, context = error["type"], error["loc"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(_model_at(root, loc[:-1]), document, place)
    if kind == "missing":
        noun = _model_at(root, loc[:-1]).noun
        span = document.key_span(place) if place else document.value_span(place)
        return FileError(f"{noun} needs the key `{loc[-1]}`", span=span)
    if kind == "sgldbg":
        hints = [context["hint"]] if context["hint"] else []
        span = document.key_span(place) if loc[-1] == "[key]" else document.value_span(place)
        if context["line"] >= 0:
            at = context["line"], context["column"], context["length"]
            span = document.code_span(place, *at)
        return FileError(context["message"], span=span, hints=hints)
    span = document.value_span(place)
    subject = _subject(place)
    if kind == "literal_error":
        expected = context["expected"].replace("'", "`").replace("True", "`true`")
        given = f"`{error['input'][:60]}`" if isinstance(error["input"], str) else ""
        message = f"{subject} must be {expected}, not {given or _shown(error['input'])}"
        return FileError(message, span=span)
    if kind in _WANTED:
        return _wrong_type(kind, error["input"], subject, span)
    if kind == "too_long":
        message = f"{subject} must not hold more than {context['max_length']}"
        return FileError(message, span=span)
    if kind == "too_short":
        return FileError(f"{subject} must not be empty", span=span)
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return FileError(f"{subject} must be {words} {context[key]}", span=span)
    return FileError(f"{subject}: {error['msg'].lower()}", span=span)


def _unknown_key(model: type[Strict], document: Document, place: Place) -> FileError:
    key, span = str(place[-1]), document.key_span(place)
    known = _keys(model)
    hints = suggest(key, known) or [f"keys of {model.noun}: {', '.join(known)}"]
    return FileError(f"unknown key `{key[:60]}` in {model.noun}", span=span, hints=hints)


def _wrong_type(kind: str, given: Any, subject: str, span: Any) -> FileError:
    hints = []
    if kind == "string_type" and isinstance(given, (Int, Float)):
        hints = [f'quote it: `"{given.text}"`']
    elif kind == "string_type" and isinstance(given, bool):
        hints = [f'quote it: `"{str(given).lower()}"`']
    elif kind == "list_type" and isinstance(given, str) and given:
        hints = [f"write `[{given[:60]}]`"]
    elif kind in ("int_type", "float_type") and isinstance(given, str):
        hints = ["numbers are written as in JSON, without quotes"]
    message = f"{subject} must be {_WANTED[kind]}, not {_shown(given)}"
    return FileError(message, span=span, hints=hints)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return f"`{str(value).lower()}`"
        case Int() | Float():
            return f"the number `{value.text}`"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return type(value).__name__


def _subject(place: Place) -> str:
    """How a message names the value at this place."""
    if place and isinstance(place[-1], int):
        names = [part for part in place if isinstance(part, str)]
        return f"an item of `{names[-1]}`" if names else "an item"
    return f"`{place[-1]}`" if place else "the file"


def _place(document: Document, loc: tuple[str | int, ...]) -> Place:
    """The part of pydantic's location that exists in the file; tags of alternatives do not."""
    place: Place = ()
    for part in loc:
        if (*place, part) in document.values:
            place = (*place, part)
    return place


def _meant_key(root: type[Strict], document: Document, error: Any) -> Place | None:
    """Where the key would stand that an unknown key was meant to be."""
    if error["type"] != "extra_forbidden":
        return None
    *parents, key = error["loc"]
    near = find_near(str(key), _keys(_model_at(root, tuple(parents))))
    return (*_place(document, tuple(parents)), near) if near else None


def _model_at(root: type[Strict], loc: tuple[str | int, ...]) -> type[Strict]:
    """The model of the mapping at pydantic's location."""
    found = [root]
    is_name = False  # a key that the user picked, such as a host's name
    for part in loc:
        tagged = [model for model in found if part == f"<{model.__name__}>"]
        if tagged:
            found = tagged
        elif not is_name and (annotation := _fields(found[0]).get(str(part))) is not None:
            found = _models_in(annotation) or found
            is_name = typing.get_origin(annotation) is dict
            continue
        is_name = False
    return found[0]


def _keys(model: type[Strict]) -> list[str]:
    return list(_fields(model))


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Annotations by the keys that a user writes."""
    return {info.alias or name: info.annotation for name, info in model.model_fields.items()}


def _models_in(annotation: Any) -> list[type[Strict]]:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models_in(part)]
