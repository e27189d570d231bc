"""What string and number literals mean, whatever way they are spelled."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

import libcst as cst

Text = cst.SimpleString | cst.ConcatenatedString | cst.FormattedString
Number = cst.Integer | cst.Float | cst.Imaginary

# A piece of a text: what is literally there, or an interpolated expression.
Piece = str | bytes | cst.FormattedStringExpression


def number_value(node: Number) -> object:
    """The value of a number literal with its type; its lower-cased digits where it is too long."""
    digits = node.value.replace("_", "").lower()
    try:
        value = ast.literal_eval(digits)
    except (ValueError, SyntaxError):
        return digits
    return (type(value).__name__, repr(value))


def text_pieces(node: Text) -> list[Piece]:
    """The pieces of a string literal, neighbouring texts joined; no quotes, prefixes, escapes."""
    joined: list[Piece] = []
    for piece in _pieces(node):
        last = joined[-1] if joined else None
        if isinstance(piece, str) and isinstance(last, str):
            joined[-1] = last + piece
            continue
        if isinstance(piece, bytes) and isinstance(last, bytes):
            joined[-1] = last + piece
            continue
        if piece != "":
            joined.append(piece)
    return joined


def _pieces(node: cst.CSTNode) -> Iterator[Piece]:
    if isinstance(node, cst.ConcatenatedString):
        yield from _pieces(node.left)
        yield from _pieces(node.right)
    elif isinstance(node, cst.SimpleString):
        yield _literal(node.value)
    elif isinstance(node, cst.FormattedString):
        yield from formatted_pieces(node)


def formatted_pieces(node: cst.FormattedString) -> Iterator[Piece]:
    """The pieces of one f-string; a format specification stays inside its expression."""
    raw = "r" in node.prefix.lower()
    for part in node.parts:
        if isinstance(part, cst.FormattedStringExpression):
            yield part
        elif isinstance(part, cst.FormattedStringText):
            yield _formatted_text(part.value, node.quote, raw=raw)


def _formatted_text(value: str, quote: str, *, raw: bool) -> str:
    value = value.replace("{{", "{").replace("}}", "}")
    piece = value if raw else _literal(quote + value + quote)
    return piece if isinstance(piece, str) else value


def _literal(source: str) -> str | bytes:
    """The value of a literal; its source where only a newer Python would know it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape is the file's business, not ours
        try:
            value = ast.literal_eval(source)
        except (ValueError, SyntaxError):
            return source
    return value if isinstance(value, str | bytes) else source
