"""Checks the Python in a YAML value: is it an expression, one statement, or statements."""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic_core import PydanticCustomError

from orchestrator.model.patch import MAX_CODE
from orchestrator.spec.newer import find_older

T = TypeVar("T")

_METAVARIABLE = re.compile(r"(\$\$\$)([A-Z_][A-Z0-9_]*)?|(\$)([A-Z_][A-Z0-9_]*)")
# What a header needs behind it to become a whole statement.
_BODIES = (" pass", " pass\nfinally: pass", "\n case _: pass")
# What makes the header of a part a whole statement.
_CLAUSES = {
    "else": "if _:\n pass\n{0} pass",
    "elif": "if _:\n pass\n{0} pass",
    "except": "try:\n pass\n{0} pass",
    "finally": "try:\n pass\n{0} pass",
    "case": "match _:\n {0} pass",
}
_CLAUSE = re.compile(r"(else|elif|except|finally)\b")


def make_problem(
    message: str, hint: str = "", line: int = -1, column: int = 0, length: int = 1
) -> PydanticCustomError:
    """A problem of a value, in our words; `line` and `column` point into it, from 0."""
    data = {"message": message, "hint": hint, "line": line, "column": column, "length": length}
    return PydanticCustomError("sgldbg", "{message}", data)


def check_expression(text: str) -> str:
    """The expression without the blanks around it."""
    code = _read_code(text)
    try:
        with _quiet():
            tree = ast.parse(code, mode="eval")
            # Parsing alone lets `yield`, `await` and a starred expression through.
            compile(tree, "<yaml>", "eval", dont_inherit=True)
    except SyntaxError as error:
        raise _explain(error, text, code, "an expression") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.NamedExpr):
            message = "a probe only observes: `:=` would assign a variable"
            line, column = _find_start(text, code)
            first = node.lineno == 1
            at = node.col_offset + (column if first else 0)
            raise make_problem(message, "", node.lineno - 1 + line, at)
    return code


def check_anchor(text: str) -> str:
    """One statement, or the header of a compound one, in which `$NAME` stands for code.

    It may be in the syntax of a newer Python than ours, which a host may run.
    """
    code = _without_comment(_without_metavariables(_read_code(text)))
    clause = _CLAUSE.match(code)
    if clause:
        message = f"`{clause.group(1)}` begins a part of a statement, not a statement"
        raise make_problem(message, "name a statement in or around it", *_find_start(text, code))
    try:
        body = _parse_newer(_parse_statement, code)
    except SyntaxError as error:
        raise _explain(error, text, code, "a statement") from None
    if len(body) != 1:
        hint = "name one statement; `within` and `occurrence` tell equal ones apart"
        raise make_problem(f"an anchor is one statement, this is {len(body)}", hint)
    return text.strip()


def check_anchor_expression(text: str) -> str:
    """One expression, in which `$NAME` stands for code."""
    code = _without_metavariables(_read_code(text))
    try:
        _parse_newer(lambda code: ast.parse(f"({code}\n)", mode="eval"), code)
    except SyntaxError as error:
        hint = ""
        if re.match(r"[A-Za-z_$][\w.]*\s*=[^=]", code):
            hint = "name the expression alone, like `f($$$)` of `x = f($$$)`"
        message = f"this is not an expression of Python: {error.msg or 'invalid syntax'}"
        raise make_problem(message, hint) from None
    return text.strip()


def check_header(text: str) -> str:
    """The header of an enclosing statement, such as `if x:`, or of a part of one, like `else:`."""
    code = _without_comment(_without_metavariables(text.strip()))
    if code and not code.endswith(":"):
        message = "`within` takes headers of statements, which end with a colon"
        raise make_problem(message, f"write `{text.strip()[:60]}:`")
    _read_code(text)
    clause = _CLAUSE.match(code) or re.match(r"(case)\b", code)
    if not clause:
        return check_anchor(text)
    try:
        _parse_newer(lambda code: ast.parse(_CLAUSES[clause[1]].format(code)), code)
    except SyntaxError as error:
        message = f"this is not the header of a part of a statement: {error.msg}"
        raise make_problem(message) from None
    return text.strip()


def check_template(text: str) -> str:
    """Statements in which `$NAME` and `$$$NAME` stand for what the anchor's matched."""
    _read_code(text)
    code = _without_metavariables(textwrap.dedent(text).strip("\n"))
    try:
        with _quiet():
            tree = ast.parse(code)
    except SyntaxError as error:
        raise _explain(error, text, code, "code") from None
    if not tree.body:
        raise make_problem("there is no statement in this code")
    return textwrap.dedent(text).strip("\n") + "\n"


def find_metavariables(text: str) -> list[str]:
    """The metavariables of code as they are written, each once, in order; `$$$` has no name."""
    return list(dict.fromkeys(m.group() for m in _METAVARIABLE.finditer(text)))


def check_statements(text: str) -> str:
    """Statements to insert, without the indentation that they share."""
    _read_code(text)
    code = textwrap.dedent(text).strip("\n")
    try:
        with _quiet():
            tree = ast.parse(code)
    except SyntaxError as error:
        raise _explain(error, text, code, "code") from None
    if not tree.body:
        raise make_problem("there is no statement in this code")
    return code + "\n"


def _read_code(text: str) -> str:
    if len(text) > MAX_CODE:
        raise make_problem(f"code of more than {MAX_CODE:,} characters")
    if not text.strip():
        raise make_problem("the code is empty")
    return text.strip()


def _without_comment(code: str) -> str:
    """Code without the comment that ends it, so that a header ends with its colon."""
    ends = [0, *(m.end() for m in re.finditer("\n", code))]
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT and token.start[0] == len(ends):
                return code[: ends[-1] + token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError):
        pass  # the parser says what is wrong with it
    return code


def _parse_newer(parse: Callable[[str], T], code: str) -> T:
    """What `parse` makes of the code, which may be in the syntax of a newer Python."""
    try:
        with _quiet():
            return parse(code)
    except SyntaxError:
        with _quiet():
            older = find_older(code)
            if older is None:
                raise
            return parse(older)


def _parse_statement(code: str) -> list[ast.stmt]:
    """Its statements; of a header with an empty body."""
    failure: SyntaxError | None = None
    for body in _BODIES if code.endswith(":") else ("",):
        try:
            with _quiet():
                return ast.parse(code + body).body
        except SyntaxError as error:
            failure = failure or error
    assert failure is not None
    raise failure


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings (matters of taste of the code's owner); every failure is a `SyntaxError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (ValueError, MemoryError, RecursionError) as error:
            raise SyntaxError(str(error).lower() or "nested too deeply") from None


def _find_start(text: str, code: str) -> tuple[int, int]:
    """Line and column in `text` at which `code`, its part without blanks around, begins."""
    before = text[: len(text) - len(text.lstrip())]
    return before.count("\n"), len(before) - before.rfind("\n") - 1


def _without_metavariables(code: str) -> str:
    """`$NAME` as a plain name of the same length, so that columns stay."""

    def replace(match: re.Match[str]) -> str:
        return match.group().replace("$", "_")

    return _METAVARIABLE.sub(replace, code)


def _explain(error: SyntaxError, text: str, code: str, wanted: str) -> PydanticCustomError:
    # Python counts lines from the start of the code, which is not a line of the file.
    reason = re.sub(r" on line \d+$", "", error.msg or "invalid syntax")
    hint = ""
    if wanted == "an expression" and re.match(r"[A-Za-z_][\w.]*\s*=[^=]", code):
        hint = "an expression assigns nothing; to compare, write `==`"
    elif re.search(r"never closed|unmatched", reason):
        hint = "in a list written as `[...]` a comma ends a value: quote values that hold one"
    elif "$" in code:
        hint = "metavariables are `$NAME` in capitals, `$_` and `$$$NAME`"
    message = f"this is not {wanted} of Python: {reason}"
    line, column = _find_start(text, code)
    number = (error.lineno or 1) - 1
    lines = code.split("\n")
    if number >= len(lines):
        return make_problem(message, hint)
    # Past the end of a line, point at its last character.
    at = max(0, min((error.offset or 1) - 1, len(lines[number]) - 1))
    return make_problem(message, hint, line + number, at + (0 if number else column))
