"""Placeholders in a server's commands that would reach the server as they were written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.errors import FileError
from orchestrator.model.inventory import ARGS, PLACEHOLDERS
from orchestrator.model.near import find_near
from orchestrator.model.source import Span
from orchestrator.spec.document import Document, Place

_NAMES = tuple(text.strip("{}") for text in (*PLACEHOLDERS, ARGS))
# `${host}` is a shell's own variable, `{{host}}` a template's.
_OPENED = re.compile(r"(?<![${])\{( *)([A-Za-z_]\w*)")
_FORMAT = re.compile(r"[:!.\[][^ {}]*\}")
_UNOPENED = re.compile(rf"(?:^|=)((?:{'|'.join(_NAMES)})\}})$")
_WHERE_ARGS = "it is a word of `start`, the place of the arguments that a session adds"

# A problem: where in the text it begins, the words that are wrong, the message, and the hint.
Problem = tuple[int, str, str, str]


def find_misplaced(document: Document, name: str, server: Any) -> Iterator[FileError]:
    """What looks like a placeholder in the launch of this server, and is not filled in there."""
    launch = server.get("launch") if isinstance(server, dict) else None
    if not isinstance(launch, dict):
        return
    above: Place = ("servers", name, "launch")
    for place, text, filled in _list_texts(launch):
        words = _split(text) if len(place) == 1 and place[0] != "cwd" else [text]
        yield from _find_in(document, (*above, *place), text, words, filled)
    for place, text, at in _find_second(launch.get("start")):
        span = _find_span(document, ("servers", name, "launch", "start", *place), text, at, ARGS)
        hint = "a session's arguments have one place"
        yield FileError(f"`{ARGS}` stands twice", span=span, hints=[hint])


def find_misplaced_in_restart(document: Document, restart: Any) -> Iterator[FileError]:
    """The same in what a session changes of its server."""
    if not isinstance(restart, dict):
        return
    for key in ("add_args", "remove_args", "env"):
        value = restart.get(key)
        for place, text in [((key,), value), *_list_items(key, value)]:
            if isinstance(text, str):
                words = _split(text) if len(place) == 1 else [text]
                yield from _find_in(document, ("restart", *place), text, words, PLACEHOLDERS)


def _find_in(
    document: Document, place: Place, text: str, words: Sequence[str], filled: Sequence[str]
) -> Iterator[FileError]:
    for at, wrong, message, hint in [*_scan(text, words, filled), *_scan_args(text, words)]:
        span = _find_span(document, place, text, at, wrong)
        yield FileError(message, span=span, hints=[hint])


def _find_second(start: Any) -> Iterator[tuple[Place, str, int]]:
    """Every `{args}` of a start command but the first."""
    if isinstance(start, str) and _split(start).count(ARGS) > 1:
        for match in [*re.finditer(re.escape(ARGS), start)][1:]:
            yield (), start, match.start()
    elif isinstance(start, list):
        for index in [at for at, word in enumerate(start) if word == ARGS][1:]:
            yield (index,), ARGS, 0


def _list_texts(launch: dict[Any, Any]) -> Iterator[tuple[Place, str, tuple[str, ...]]]:
    """Each text of a launch with its place and the placeholders that are filled in there."""
    for key in ("command", "stop", "start", "cwd", "systemd"):
        filled = {"start": (*PLACEHOLDERS, ARGS), "systemd": ()}.get(key, PLACEHOLDERS)
        value = launch.get(key)
        for place, text in [((key,), value), *_list_items(key, value)]:
            if isinstance(text, str):
                yield place, text, filled
    for variable, value in _list_items("env", launch.get("env")):
        if isinstance(value, str):
            yield variable, value, PLACEHOLDERS


def _list_items(key: str, value: Any) -> list[tuple[Place, Any]]:
    if isinstance(value, dict):
        return [((key, name), item) for name, item in value.items()]
    return [((key, at), item) for at, item in enumerate(value if isinstance(value, list) else ())]


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return [text]  # which is a problem of its own


def _scan(text: str, words: Sequence[str], filled: Sequence[str]) -> Iterator[Problem]:
    for match in _OPENED.finditer(text):
        blank, name, rest = match.group(1), match.group(2), text[match.end() :]
        if rest.startswith("}") and not blank:
            if f"{{{name}}}" not in filled:
                yield from _explain_other(match.start(), name, words, filled)
        elif name in _NAMES and not re.match(r",|: ", rest):  # lists of a shell, mappings
            tail = re.match(r" *\}", rest) or _FORMAT.match(rest)
            if blank and not tail:
                continue  # the body of a shell's function
            wrong = match.group() + (tail.group() if tail else "")
            how = "filled in" if tail else "closed"
            message = f"the placeholder `{wrong}` is not {how}"
            yield match.start(), wrong, message, f"write `{{{name}}}`"
    for word in words:
        unopened = _UNOPENED.search(word)
        if unopened is not None:
            wrong = unopened.group(1)
            at = max(text.find(wrong), 0)
            yield at, wrong, f"the placeholder `{wrong}` is not opened", f"write `{{{wrong}`"


def _explain_other(
    at: int, name: str, words: Sequence[str], filled: Sequence[str]
) -> Iterator[Problem]:
    """One that is whole, but no placeholder of this command; a script may have such words."""
    wrong = f"{{{name}}}"
    if not filled:
        yield at, wrong, f"`{wrong}` is not filled in here", "write what it stands for"
        return
    if wrong == ARGS:
        yield at, wrong, f"`{wrong}` is not filled in here", _WHERE_ARGS
        return
    near = find_near(name, [text.strip("{}") for text in filled])
    if near is None and not any(wrong in word and not re.search(r"\s", word) for word in words):
        return
    hint = (
        f"did you mean `{{{near}}}`?" if near else f"filled in are {', '.join(map(_code, filled))}"
    )
    yield at, wrong, f"unknown placeholder `{wrong}`", hint


def _code(text: str) -> str:
    return f"`{text}`"


def _scan_args(text: str, words: Sequence[str]) -> Iterator[Problem]:
    """`{args}` is replaced as a whole word."""
    if any(ARGS in word and word != ARGS for word in words):
        hint = "have blanks around it, or make it an item of the list"
        yield text.index(ARGS), ARGS, f"`{ARGS}` must be a word of its own", hint


def _find_span(document: Document, place: Place, text: str, at: int, wrong: str) -> Span:
    """The place of the words; of folded text the line on which they stand for the same time."""
    line, column = text.count("\n", 0, at), at - (text.rfind("\n", 0, at) + 1)
    span = document.code_span(place, line, column, len(wrong))
    scalar = document.scalars.get(place)
    if scalar is None or span != scalar.span:
        return span
    before = text.count(wrong, 0, at)
    for number in range(span.line - 1, span.end_line):
        for found in re.finditer(re.escape(wrong), document.source.lines[number]):
            if before == 0:
                return document.source.span((number, found.start()), (number, found.end()))
            before -= 1
    return span
