"""Unified diffs for people to read; nothing is ever applied from them."""

from __future__ import annotations

import difflib
import io
import re
import tokenize

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def make_diff(file: str, before: bytes | None, after: bytes) -> str:
    """A unified diff with three lines of context; `before` is `None` for a new file."""
    old, new = _lines(before or b""), _lines(after)
    # Most of a file is equal; difflib need not look at it.
    start = _equal(old, new)
    end = _equal(old[start:][::-1], new[start:][::-1])
    first = max(0, start - 3)
    last_old, last_new = len(old) - max(0, end - 3), len(new) - max(0, end - 3)
    name = "/dev/null" if before is None else f"a/{file}"
    hunks = difflib.unified_diff(
        old[first:last_old], new[first:last_new], name, f"b/{file}", lineterm="\n"
    )
    return "".join(_shifted(line, first) for line in hunks)


def _equal(one: list[str], other: list[str]) -> int:
    same = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        same += 1
    return same


def _shifted(line: str, by: int) -> str:
    """A line of the diff, with the line numbers of a hunk's head counted from the file's top."""
    head = re.match(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@", line)
    if head:
        old, new = int(head[1]) + by, int(head[3]) + by
        return f"@@ -{old}{head[2] or ''} +{new}{head[4] or ''} @@\n"
    if not line.endswith(("\n", "\r")):
        return f"{line}\n\\ No newline at end of file\n"
    return line


def _lines(data: bytes) -> list[str]:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        text = data.decode("latin-1")
    return _LINE.findall(text)
