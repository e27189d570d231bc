"""Anchor text as a pattern: Python code in which `$NAME`, `$_` and `$$$NAME` are holes."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

import libcst as cst

from orchestrator.patching.unreadable import UNREADABLE

# Holes become identifiers that no sane source uses, so that LibCST can parse the pattern.
_ONE = "__sgldbg_one_"
_RUN = "__sgldbg_run_"

# Strings and comments are skipped over: a dollar sign in them is only a dollar sign.
_TOKEN = re.compile(
    r"""(?P<skip>(?:\"\"\"|''')[\s\S]*?(?:\"\"\"|''')|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*)"""
    r"""|\$\$\$(?P<run>[A-Za-z_]\w*)?|\$(?P<one>[A-Za-z_]\w*)"""
)

# What completes a header to something that parses, by its first word.
_COMPLETIONS = {
    "else": "if _:\n    pass\n{0}\n    pass\n",
    "elif": "if _:\n    pass\n{0}\n    pass\n",
    "except": "try:\n    pass\n{0}\n    pass\n",
    "finally": "try:\n    pass\n{0}\n    pass\n",
    "case": "match _:\n    {0}\n        pass\n",
    "match": "{0}\n    case _:\n        pass\n",
    "try": "{0}\n    pass\nfinally:\n    pass\n",
}


class PatternError(ValueError):
    """The text of an anchor cannot be a pattern; the message says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed anchor. `is_header` says that only the header of a compound statement counts.

    `node` is a statement; of a `within` header it may be an `Else`, `ExceptHandler` and the like.
    """

    text: str
    node: cst.CSTNode
    is_header: bool
    is_statement: bool = True


def hole_of(node: cst.CSTNode) -> str | None:
    """The name of a one-node hole (`_` for the anonymous one), or `None` for plain code."""
    if isinstance(node, cst.Name) and node.value.startswith(_ONE):
        return node.value[len(_ONE) :]
    return None


def run_of(node: cst.CSTNode) -> str | None:
    """The name of a hole for a run of elements (empty if anonymous), or `None` for plain code."""
    inner: object = node
    if isinstance(node, cst.Arg | cst.Element):
        plain = isinstance(node, cst.Element) or (node.keyword is None and node.star == "")
        inner = node.value if plain else None
    elif isinstance(node, cst.Param):
        bare = node.annotation is None and node.default is None
        inner = node.name if bare else None
    elif isinstance(node, cst.SubscriptElement):
        inner = node.slice.value if isinstance(node.slice, cst.Index) else None
    elif isinstance(node, cst.ImportAlias | cst.NameItem):
        inner = node.name
    elif isinstance(node, cst.Expr):
        inner = node.value  # a run of statements in a body
    if isinstance(inner, cst.Name) and inner.value.startswith(_RUN):
        return inner.value[len(_RUN) :]
    return None


def make_run(name: str = "") -> cst.Name:
    """The node that stands for `$$$NAME`."""
    return cst.Name(_RUN + name)


def make_hole(name: str = "_") -> cst.Name:
    """The node that stands for `$NAME`."""
    return cst.Name(_ONE + name)


def show(code: str) -> str:
    """Generated code of a pattern, with its holes written as a user writes them."""
    return code.replace(_RUN, "$$$").replace(_ONE, "$")


def parse_pattern(text: str) -> Pattern:
    """Parse one statement, or the header of one; raises `PatternError` with the reason."""
    clean = textwrap.dedent(text).strip()
    if not clean:
        raise PatternError("it is empty")
    mangled = mangle(clean)
    statement = _parse_whole(mangled)
    if statement is not None:
        return Pattern(clean, statement, is_header=False)
    return _parse_header(clean, mangled)


def mangle(text: str) -> str:
    """The text with its holes as identifiers, so that LibCST can parse it."""
    return _TOKEN.sub(_mangle, text)


def _mangle(match: re.Match[str]) -> str:
    if match["skip"] is not None:
        return match["skip"]
    if match["one"] is not None:
        return _ONE + match["one"]
    return _RUN + (match["run"] or "")


def _parse_whole(mangled: str) -> cst.CSTNode | None:
    try:
        body = cst.parse_module(mangled + "\n").body
    except UNREADABLE:
        return None
    if len(body) != 1:
        raise PatternError(f"it holds {len(body)} statements; an anchor is one")
    only = body[0]
    if isinstance(only, cst.SimpleStatementLine):
        if len(only.body) != 1:
            raise PatternError(f"it holds {len(only.body)} statements; an anchor is one")
        if run_of(only.body[0]) is not None:
            raise PatternError("`$$$` alone would be any statements; an anchor is one")
        return only.body[0]
    return only


def _parse_header(clean: str, mangled: str) -> Pattern:
    word = re.match(r"\w*", mangled)
    form = _COMPLETIONS.get(word[0] if word else "", "{0}\n    pass\n")
    try:
        body = cst.parse_module(form.format(mangled)).body
    except UNREADABLE:
        raise PatternError("it is not a Python statement, nor the header of one") from None
    if len(body) != 1:
        raise PatternError(f"it holds {len(body)} statements; an anchor is one")
    node, is_statement = _header_node(word[0] if word else "", body[0])
    return Pattern(clean, node, is_header=True, is_statement=is_statement)


def _header_node(word: str, node: cst.CSTNode) -> tuple[cst.CSTNode, bool]:
    """The part of a completed statement that the user's header stands for."""
    if word in ("else", "elif") and isinstance(node, cst.If) and node.orelse is not None:
        return node.orelse, False
    if word == "except" and isinstance(node, cst.Try | cst.TryStar):
        return node.handlers[0], False
    if word == "finally" and isinstance(node, cst.Try) and node.finalbody is not None:
        return node.finalbody, False
    if word == "case" and isinstance(node, cst.Match):
        return node.cases[0], False
    return node, True
