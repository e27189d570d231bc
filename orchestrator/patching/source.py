"""One file's bytes, parsed: the tree, where its statements stand, and what Python says of it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import libcst as cst
from libcst._nodes.internal import CodegenState

from orchestrator.errors import PatchError
from orchestrator.patching.reading import Reading, read_python
from orchestrator.patching.unreadable import UNREADABLE, find_unreadable

# What Python counts as the end of a line: a form feed or U+2028 is none.
_NEWLINE = re.compile(r"\r\n|\r|\n")


def _kinds(base: type[cst.CSTNode]) -> Iterator[type[cst.CSTNode]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)


# Looked up by the exact type: `isinstance` with LibCST's abstract classes takes ten times as long,
# for every node of a file.
_STATEMENTS = frozenset(
    k for base in (cst.BaseSmallStatement, cst.BaseCompoundStatement) for k in _kinds(base)
)
_LINES = _STATEMENTS | {cst.SimpleStatementLine}
_NOTHING: AbstractContextManager[None] = nullcontext()


class Recorder(CodegenState):
    """Generates code and notes where statements and lines begin and end.

    LibCST's own position providers need a second walk over the tree, 4 to 5 times the parse;
    this costs nothing beside the generation that is needed anyway.
    """

    def __init__(self, module: cst.Module) -> None:
        super().__init__(
            default_indent=module.default_indent, default_newline=module.default_newline
        )
        self.statements: dict[int, int] = {}
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def record_syntactic_position(  # type: ignore[override]  # cheaper than a generator
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> AbstractContextManager[None]:
        """Called where the code of `node` itself begins, its indentation being out."""
        if type(node) in _STATEMENTS:
            self.statements[id(node)] = len(self.tokens)
        return _NOTHING

    def before_codegen(self, node: cst.CSTNode) -> None:
        """Called before anything of `node` is out, with its leading lines and indentation."""
        if type(node) in _LINES:
            self.begins[id(node)] = len(self.tokens)

    def after_codegen(self, node: cst.CSTNode) -> None:
        """Called when all of `node` is out."""
        if type(node) in _LINES:
            self.ends[id(node)] = len(self.tokens)

    def offsets(self) -> list[int]:
        """The offset in the code of every token's begin, and of the end."""
        return list(accumulate(map(len, self.tokens), initial=0))


class Marker(Recorder):
    """Generates code and notes where the `wanted` nodes begin and end, by their `id`."""

    def __init__(self, module: cst.Module, wanted: frozenset[int]) -> None:
        super().__init__(module)
        self.wanted = wanted

    def record_syntactic_position(  # type: ignore[override]
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> AbstractContextManager[None]:
        """Not needed here."""
        return _NOTHING

    def before_codegen(self, node: cst.CSTNode) -> None:
        """Called before anything of `node` is out, with its leading lines and indentation."""
        if id(node) in self.wanted:
            self.begins[id(node)] = len(self.tokens)

    def after_codegen(self, node: cst.CSTNode) -> None:
        """Called when all of `node` is out."""
        if id(node) in self.wanted:
            self.ends[id(node)] = len(self.tokens)


def generate(module: cst.Module, wanted: frozenset[int]) -> tuple[str, Marker]:
    """The module's code, with the places of the wanted nodes."""
    marker = Marker(module, wanted)
    module._codegen(marker)
    return "".join(marker.tokens), marker


@dataclass(frozen=True)
class Source:
    """A file that was read and comes back from its tree byte for byte."""

    file: str
    data: bytes
    module: cst.Module
    code: str
    starts: Mapping[int, int]
    spans: Mapping[int, tuple[int, int]]

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(m.end() for m in _NEWLINE.finditer(self.code))]

    @cached_property
    def reading(self) -> Reading | None:
        """What this Python's own compiler says of the file; `None` where it cannot read it."""
        return read_python(self.data)

    def offset_of(self, node: cst.CSTNode) -> int:
        """Where a statement of this tree begins, in characters, its indentation left out."""
        return self.starts[id(node)]

    def line_of(self, node: cst.CSTNode) -> int:
        """The line, from 1, on which a statement of this tree begins (`def`, not decorators)."""
        return bisect_right(self._line_starts, self.offset_of(node))

    def code_of(self, node: cst.CSTNode) -> str:
        """All the code of a statement or line of this tree, with the comments above a line."""
        begin, end = self.spans[id(node)]
        return self.code[begin:end]

    def skip_lines(self, offset: int, count: int) -> int:
        """Where so many lines of the code, from the beginning of one, are over."""
        line = bisect_right(self._line_starts, offset) - 1
        return self._line_starts[line + count] if count else offset

    def place_of(self, node: cst.CSTNode) -> tuple[int, int]:
        """Line and column of a statement as `ast` counts them: from 1, in UTF-8 bytes from 0."""
        offset = self.offset_of(node)
        line = bisect_right(self._line_starts, offset)
        before = self.code[self._line_starts[line - 1] : offset]
        return line, len(before.encode("utf-8"))

    def line_text(self, line: int) -> str:
        """The text of a line without its end; empty beyond the file."""
        if not 1 <= line <= len(self._line_starts):
            return ""
        start = self._line_starts[line - 1]
        end = _NEWLINE.search(self.code, start)
        return self.code[start : end.start() if end else len(self.code)]

    def shown(self, first: int, last: int) -> Iterator[str]:
        """Numbered lines for a message; lines beyond the file are left out."""
        total = len(self._line_starts) - (1 if self.code.endswith(("\r", "\n")) else 0)
        last = min(last, total)
        width = len(str(last))
        for line in range(max(first, 1), last + 1):
            yield f"{line:>{width}} | {self.line_text(line)}".rstrip()


def read_source(data: bytes, file: str) -> Source:
    """Parse a file; the tree must give back exactly these bytes.

    Raises `PatchError` with state `parse` (LibCST cannot read it) or `lossy` (it would come back
    changed: LibCST 1.9 drops the space before the colon of `except T :`, a leading form feed, ...).
    """
    _check_encoding(data, file)
    try:
        module = cst.parse_module(data)
    except cst.ParserSyntaxError as error:
        raise PatchError(
            f"`{file}` cannot be parsed", state="parse", notes=(_syntax(error, data),), file=file
        ) from None
    except UNREADABLE:
        line = find_unreadable(data)
        where = f"line {line}: " if line else ""
        note = f"{where}Python reads it, LibCST does not: it wants a space behind each keyword"
        message = f"`{file}` cannot be parsed"
        raise PatchError(message, state="parse", notes=(note,), file=file) from None
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise PatchError(f"`{file}` cannot be parsed: {error}", state="parse", file=file) from None
    recorder = Recorder(module)
    module._codegen(recorder)
    code, offsets = "".join(recorder.tokens), recorder.offsets()
    if code.encode(module.encoding) != data:
        raise _lossy(data, code.encode(module.encoding), file)
    starts = {node: offsets[token] for node, token in recorder.statements.items()}
    last = len(offsets) - 1  # LibCST drops the last end of line again where the file has none
    ends = recorder.ends
    spans = {n: (offsets[b], offsets[min(ends[n], last)]) for n, b in recorder.begins.items()}
    return Source(file, data, module, code, starts, spans)


def _check_encoding(data: bytes, file: str) -> None:
    """Refuse bytes that the file's own encoding does not know, naming the line and the byte."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PatchError(
            f"`{file}` line {line}: byte 0x{data[error.start]:02X} is not {error.encoding.upper()}",
            state="parse",
            notes=("a file without an encoding line is UTF-8",),
            file=file,
        ) from None
    except (SyntaxError, LookupError) as error:
        raise PatchError(
            f"`{file}` has an encoding that cannot be read: {error}", state="parse", file=file
        ) from None


def _syntax(error: cst.ParserSyntaxError, data: bytes) -> str:
    place = re.search(r"error at (\d+):(\d+)", error.message)
    if place:
        return f"the parser stopped at line {place[1]}, column {place[2]}"
    reason = error.message.strip().splitlines()[0].removeprefix("tokenizer error: ")
    line = _line_of_token(data)  # which the tokenizer does not tell
    return f"line {line}: {reason}" if line else reason


def _line_of_token(data: bytes) -> int | None:
    if b"\0" in data:
        return data.count(b"\n", 0, data.index(b"\0")) + 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file's own warnings are not ours to repeat
            ast.parse(data)
    except SyntaxError as error:
        return error.lineno
    except (ValueError, RecursionError, MemoryError):
        return None
    return None


def _lossy(data: bytes, again: bytes, file: str) -> PatchError:
    same = next((i for i, (a, b) in enumerate(zip(data, again, strict=False)) if a != b), None)
    offset = min(len(data), len(again)) if same is None else same
    line = data.count(b"\n", 0, offset) + 1
    return PatchError(
        f"`{file}` would not come back unchanged from the syntax tree (line {line})",
        state="lossy",
        notes=("an edit would change bytes that nobody asked to change, so it is refused",),
        file=file,
    )
