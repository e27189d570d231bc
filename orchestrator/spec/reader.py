"""YAML text to plain values with places; nothing is ever built by a tag."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from orchestrator.errors import FileError, FileErrors
from orchestrator.model.source import Span
from orchestrator.spec.compose import Composer
from orchestrator.spec.document import LINE_END, Document, Source
from orchestrator.userfile import read_user_file, reason_of

MAX_SIZE_BYTES = 1 << 20  # the largest file by hand is a few KB; YAML is parsed at about 0.1 MB/s

# What PyYAML says -> what to do about it.
_ADVICE = (
    (
        "mapping values are not allowed",
        "quote a value that holds a colon followed by a space;"
        " keys of one mapping begin in the same column",
    ),
    ("expected ',' or ']'", "quote a value that holds `[`, `]`, `{`, `}` or `,` inside `[...]`"),
    ("expected ',' or '}'", "quote a value that holds `[`, `]`, `{`, `}` or `,` inside `{...}`"),
    ("cannot start any token", "quote the value"),
    ("while scanning an alias", "quote a value that begins with `*`"),
    ("while scanning an anchor", "quote a value that begins with `&`"),
    ("could not find expected ':'", "a key needs a colon and a space after it"),
    ("expected <block end>", "keys of one mapping begin in the same column"),
)


def read_document(path: str | Path, code_keys: frozenset[str] = frozenset()) -> Document:
    """The file's values and places; raises `FileErrors` with all problems that were found.

    Values below one of `code_keys` hold code: there a comment right behind a plain value is taken
    for a part of the code that YAML has cut off, and refused.
    """
    data = read_bytes(path)
    return parse_document(data, str(path), code_keys)


def read_bytes(path: str | Path) -> bytes:
    """The whole file; raises `FileErrors` where it is none, or larger than people write them."""
    try:
        return read_user_file(path, MAX_SIZE_BYTES)
    except OSError as error:
        problem = FileError(f"cannot read `{path}`: {reason_of(error)}")
        raise FileErrors([problem]) from None


def read_text(path: str | Path) -> str:
    """As `read_bytes`, of a file that must be UTF-8."""
    return _decode(read_bytes(path), str(path))


def parse_document(data: bytes, path: str, code_keys: frozenset[str] = frozenset()) -> Document:
    """As `read_document`, of bytes that were read from `path`."""
    text = _decode(data, path)
    source = Source(path, tuple(LINE_END.split(text)))
    composer = Composer(source, code_keys)
    try:
        _compose(text, source, composer)
    except FileError as problem:
        composer.problems.append(problem)
    if composer.problems:
        raise FileErrors(sort_problems(composer.problems))
    return composer.document()


def _compose(text: str, source: Source, composer: Composer) -> None:
    loader: Any = None
    try:
        loader = yaml.SafeLoader(text)
        composer.compose(loader)
    except yaml.YAMLError as error:
        raise _explain(error, text, source) from None
    except (ValueError, OverflowError):
        # PyYAML hands escapes such as `\UFFFFFFFF` to chr() and digits of %YAML to int().
        here = (loader.line, loader.column) if loader else (0, 0)
        message = "not valid YAML: a number or an escape is out of range"
        raise FileError(message, span=source.span(here, here)) from None


def sort_problems(problems: list[FileError]) -> list[FileError]:
    """In order of file and place, each once."""

    def place(problem: FileError) -> tuple[str, int, int]:
        span = problem.span
        return (span.path, span.line, span.column) if span else ("", 0, 0)

    once = {(place(problem), problem.message): problem for problem in problems}
    return [once[key] for key in sorted(once, key=lambda key: key[0])]


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        lines = LINE_END.split(before)
        rest = LINE_END.split(data[error.start : error.start + 200].decode("utf-8", "replace"))
        line = len(lines)
        column = len(lines[-1]) + 1
        shown = lines[-1] + rest[0]
        span = Span(path, line, column, line, column + 1, (shown,))
        message = f"not UTF-8: byte 0x{data[error.start]:02x}"
        hint = "save the file as UTF-8"
        raise FileErrors([FileError(message, span=span, hints=[hint])]) from None


def _explain(error: yaml.YAMLError, text: str, source: Source) -> FileError:
    """PyYAML's error, with the place and what to do."""
    if isinstance(error, yaml.reader.ReaderError):
        lines = LINE_END.split(text[: error.position])
        here = (len(lines) - 1, len(lines[-1]))
        message = f"character U+{ord(text[error.position]):04X} is not allowed in YAML"
        return FileError(message, span=source.span(here, (here[0], here[1] + 1)))
    problem, context = _attribute(error, "problem"), _attribute(error, "context")
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    here = (mark.line, mark.column) if mark else (0, 0)
    span = source.span(here, (here[0], here[1] + 1))
    if problem == "found unexpected end of stream":
        opened: Any = getattr(error, "context_mark", None) or mark
        begin = (opened.line, opened.column)
        span = source.span(begin, (begin[0], begin[1] + 1))
        return FileError("the quotes that open here are never closed", span=span)
    if problem.startswith("found character '\\t'"):
        hint = "YAML takes spaces only, for indentation and after a colon"
        return FileError("a tab stands where a space is needed", span=span, hints=[hint])
    notes = []
    start: Any = getattr(error, "context_mark", None)
    if context and start is not None:
        notes.append(f"{context} that begins on line {start.line + 1}")
    said = f"{context} {problem}"
    hints = [advice for words, advice in _ADVICE if words in said][:1]
    return FileError(f"not valid YAML: {_quoted(problem)}", span=span, notes=notes, hints=hints)


def _attribute(error: yaml.YAMLError, name: str) -> str:
    return str(getattr(error, name, None) or "")


def _quoted(problem: str) -> str:
    """PyYAML's words with literals in backticks."""
    return re.sub(r"(?<![\w`])'(.*?)'(?!\w)", r"`\1`", problem) or "it ends too early"
