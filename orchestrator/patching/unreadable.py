"""What LibCST raises of code that it does not read, and where that is if Python does."""

from __future__ import annotations

import ast
import textwrap
import warnings

import libcst as cst

# Of `return.5` its own rules want a space; of `return(lambda: 1)` it fails while it says so.
UNREADABLE = (cst.ParserSyntaxError, cst.CSTValidationError, TypeError)


def find_unreadable(data: bytes) -> int | None:
    """The line (from 1) of the innermost statement that Python reads and LibCST does not."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return None
    lines = data.decode(errors="replace").splitlines(keepends=True)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    for node in sorted(found, key=lambda node: (node.end_lineno or 0) - node.lineno):
        text = textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno]))
        try:
            cst.parse_module(text)
        except cst.ParserSyntaxError:
            continue  # a part of its line alone is no statement
        except UNREADABLE:
            return node.lineno
    return None
