"""Reads code in syntax that is newer than the Python that runs us: as equal code that is older.

Hosts may run a newer Python than the controller. Strings whose braces hold code as only 3.12 reads
it (PEP 701) and template strings (PEP 750) become plain strings, once that code was read itself;
type parameters and `type` (PEP 695) are left out, and `except A, B:` (PEP 758) is read with `or`.
Everything else stays where it is, so that an error of it keeps its line and, but for what stands
behind a string of several lines, its column.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

Version = tuple[int, int]

_STRING = re.compile(
    r"""((?<!\w)(?:[rbu]|br|rb|[ft]r?|r[ft]))?(\'\'\'|\"\"\"|'|")""", re.IGNORECASE
)
_PARAMETERS = re.compile(r"^[ \t]*(?:(?:async\s+)?(?:def|class)|type)\s+\w+\s*(?=\[)", re.MULTILINE)
_TYPE = re.compile(r"^([ \t]*type)[ \t]+(?=[^\W\d]\w*\s*=[^=])", re.MULTILINE)
_EXCEPT = re.compile(
    r"^([ \t]*except\*?[ \t]+)(?![^:\n]*\bas\b)([^(\s][^:\n]*,[^:\n]*)(?=:)", re.MULTILINE
)
_OPEN, _CLOSE = "([{", ")]}"
_NEWER_IN_BRACES = (3, 12)
_TYPES = (3, 12)
_TEMPLATES = (3, 14)
_BARE_EXCEPT = (3, 14)


@dataclass(frozen=True, slots=True)
class _Text:
    """A string in code, from its prefix on to behind its last quote, and the code in its braces.

    Each piece of that code comes with the position at which it begins.
    """

    start: int
    end: int
    prefix: str
    quote: str
    codes: tuple[tuple[int, str], ...]


class _NotClosedError(ValueError):
    """A string, or a brace in it, has no end."""


def find_older(code: str, version: Version = sys.version_info[:2]) -> str | None:
    """The code as a Python of `version` reads it, or `None` where it needs no newer one.

    Raises `SyntaxError`, with line and column in `code`, where what stands in the braces of a
    newer string is no expression. What type parameters hold is not read.
    """
    older = code
    try:
        for text in _find_texts(code):
            if _is_newer(code, text, version):
                for start, inner in text.codes:
                    _require_expression(code, start, inner, version)
                older = _overwrite(older, text)
    except _NotClosedError:
        return None  # Python says it better
    if version < _TYPES:
        older = _leave_out_types(older)
    if version < _BARE_EXCEPT:
        older = _EXCEPT.sub(lambda m: m[1] + m[2].replace(",", "|"), older)
    return None if older == code else older


def _require_expression(code: str, start: int, inner: str, version: Version) -> None:
    try:
        if not inner:
            raise SyntaxError("nothing stands between the braces")
        ast.parse(f"({find_older(inner, version) or inner}\n)", mode="eval")
    except SyntaxError as error:
        line, column = code.count("\n", 0, start) + 1, start - code.rfind("\n", 0, start)
        within = max(1, (error.offset or 2) - 1)  # behind the parenthesis that was put before it
        if (error.lineno or 1) > 1:
            line, column, within = line + (error.lineno or 1) - 1, 1, within + 1
        place = (None, line, column + within - 1, None)
        raise SyntaxError(error.msg, place) from None


def _is_newer(code: str, text: _Text, version: Version) -> bool:
    if "t" in text.prefix:
        return version < _TEMPLATES
    if "f" not in text.prefix or version >= _NEWER_IN_BRACES:
        return False
    several_lines = len(text.quote) == 1 and "\n" in code[text.start : text.end]
    return several_lines or any(
        text.quote in inner or "\\" in inner or "#" in inner for _, inner in text.codes
    )


def _overwrite(code: str, text: _Text) -> str:
    """The code with a plain string, as long as the text and with its lines, in the text's place."""
    written = code[text.start : text.end]
    size = len(written)
    lines = ["\n" * part.count("\n") for part in (written[:3], written[-3:])]
    inner = lines[0] + re.sub(r"[^\n]", "_", written[3:-3]) + lines[1]
    # Too short for three quotes on either side, it has no line ends that one quote would not take.
    plain = f"'''{inner}'''" if size >= 6 else f"'{'_' * (size - 2)}'"
    return code[: text.start] + plain + code[text.end :]


def _leave_out_types(code: str) -> str:
    for match in reversed(list(_PARAMETERS.finditer(code))):
        try:
            end = _skip_brackets(code, match.end())
        except _NotClosedError:
            continue
        blank = re.sub(r"[^\n]", " ", code[match.end() : end])
        code = code[: match.end()] + blank + code[end:]
    return _TYPE.sub(lambda m: m[1] + "_" * (m.end() - m.end(1)), code)


def _find_texts(code: str) -> Iterator[_Text]:
    """Every string of the code in order, comments passed over."""
    at = 0
    while at < len(code):
        match = _STRING.match(code, at)
        if match:
            text = _read_text(code, match)
            yield text
            at = text.end
        elif code[at] == "#":
            at = _find_line_end(code, at)
        else:
            at += 1


def _read_text(code: str, match: re.Match[str]) -> _Text:
    prefix, quote = (match[1] or "").lower(), match[2]
    holds_code = "f" in prefix or "t" in prefix
    at = match.end()
    codes: list[tuple[int, str]] = []
    while not code.startswith(quote, at):
        if at >= len(code):
            raise _NotClosedError
        pair = code[at : at + 2]
        if pair == "\\N" and holds_code and "r" not in prefix and code[at + 2 : at + 3] == "{":
            at = _find(code, "}", at)
        elif not holds_code or pair[0] not in "{}":
            # A backslash before a brace is one of the text, the brace is none.
            at += 2 if pair[0] == "\\" and not (holds_code and pair[1:] in ("{", "}")) else 1
        elif pair in ("{{", "}}"):
            at += 2
        else:
            at = _read_braces(code, at, quote, codes)
    return _Text(match.start(), at + len(quote), prefix, quote, tuple(codes))


def _read_braces(code: str, at: int, quote: str, codes: list[tuple[int, str]]) -> int:
    """Take up the code in the braces that open at `at`; the position behind them."""
    if code[at] == "}":
        raise _NotClosedError
    start, at = at + 1, _find_code_end(code, at + 1)
    inner = code[start:at]
    begin = start + len(inner) - len(inner.lstrip())
    codes.append((begin, inner.strip().removesuffix("=").rstrip()))
    while code[at : at + 1] != "}":  # a conversion, and a format with braces of its own
        if at >= len(code) or code.startswith(quote, at):
            raise _NotClosedError
        at = _read_braces(code, at, quote, codes) if code[at] == "{" else at + 1
    return at + 1


def _find(code: str, what: str, at: int) -> int:
    found = code.find(what, at)
    if found < 0:
        raise _NotClosedError
    return found + 1


def _find_code_end(code: str, at: int) -> int:
    """Where the code in braces ends: at a conversion, a format, or the closing brace."""
    while at < len(code):
        match = _STRING.match(code, at)
        if match:
            at = _read_text(code, match).end
        elif code[at] == "#":
            at = _find_line_end(code, at)
        elif code[at] in _OPEN:
            at = _skip_brackets(code, at)
        elif code.startswith("!=", at):
            at += 2
        elif code[at] in "!:}":
            return at
        else:
            at += 1
    raise _NotClosedError


def _skip_brackets(code: str, at: int) -> int:
    """Behind the bracket that closes the one at `at`; strings and comments hold none."""
    depth = 0
    while at < len(code):
        match = _STRING.match(code, at)
        if match:
            at = _read_text(code, match).end
            continue
        if code[at] == "#":
            at = _find_line_end(code, at)
            continue
        depth += (code[at] in _OPEN) - (code[at] in _CLOSE)
        at += 1
        if depth == 0:
            return at
    raise _NotClosedError


def _find_line_end(code: str, at: int) -> int:
    end = code.find("\n", at)
    return len(code) if end < 0 else end
