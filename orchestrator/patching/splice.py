"""Puts new nodes into a tree and ships the difference as insertions into the original bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.plan import Insertion
from orchestrator.patching.source import Source, generate
from orchestrator.patching.structure.walk import Path

New = cst.BaseSmallStatement | cst.SimpleStatementLine | cst.BaseCompoundStatement


@dataclass(frozen=True, slots=True)
class Change:
    """New statements beside one that stands: `path` leads to that one, `nodes` are in order.

    Small statements join the line of a small one; lines and compound statements stand beside a
    line or compound statement.
    """

    path: Path
    side: str
    nodes: tuple[New, ...]

    @property
    def top(self) -> int:
        """Which top-level statement of the module the change goes to."""
        index = self.path[0].index
        assert index is not None
        return index


def splice(source: Source, changes: Sequence[Change]) -> tuple[bytes, tuple[Insertion, ...]]:
    """The patched bytes, and the insertions that make them of the original.

    Changes at one place keep their order. Every inserted byte is generated from the new tree; the
    rest is the original's own. Raises `PatchError` with state `proof` where the difference is not
    made of insertions alone, and `refused` where the file's encoding lacks a character.
    """
    weaver = _Weaver(source.module, changes)
    module = weaver.weave()
    code, recorder = generate(module, frozenset(weaver.marks) | frozenset(weaver.lines.values()))
    offsets = recorder.offsets()
    ranges = []
    for node in weaver.marks:
        start = offsets[recorder.begins[node]]
        if node in weaver.lines:  # comments above the statement stay above what is inserted
            start = offsets[recorder.ends[weaver.lines[node]]]
        # LibCST drops the last end of line again where the file has none.
        end = min(recorder.ends[node], len(offsets) - 1)
        ranges.append((start, offsets[end]))
    insertions = _insertions(source, code, merged(final_line(source, code, sorted(ranges))))
    after = apply_insertions(source.data, insertions)
    if after != _encoded(source, code):
        raise _impure(source)
    return after, insertions


def apply_insertions(data: bytes, insertions: Sequence[Insertion]) -> bytes:
    """The original bytes with everything inserted; insertions are in order of their offsets."""
    pieces, at = [], 0
    for insertion in insertions:
        pieces += [data[at : insertion.offset], insertion.data]
        at = insertion.offset
    return b"".join([*pieces, data[at:]])


def remove_insertions(data: bytes, insertions: Sequence[Insertion]) -> bytes | None:
    """The bytes without the insertions; `None` where they are not what stands there."""
    pieces, at, shift = [], 0, 0
    for insertion in insertions:
        start = insertion.offset + shift
        end = start + len(insertion.data)
        if data[start:end] != insertion.data or start < at:
            return None
        pieces.append(data[at:start])
        at, shift = end, shift + len(insertion.data)
    return b"".join([*pieces, data[at:]])


def final_line(
    source: Source, code: str, ranges: Sequence[tuple[int, int]]
) -> Sequence[tuple[int, int]]:
    """Ranges as insertions into the original where the file has no end of line at its end.

    The new last line takes over the missing end; what is inserted is the end of the line before.
    """
    if source.module.has_trailing_newline or not ranges or ranges[-1][1] != len(code):
        return ranges
    joined = merged(ranges)
    start, end = joined[-1]
    newline = next((n for n in ("\r\n", "\n", "\r") if code[:start].endswith(n)), "")
    return [*joined[:-1], (start - len(newline), end)]


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted ranges with those that touch made one."""
    joined: list[tuple[int, int]] = []
    for start, end in ranges:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _insertions(
    source: Source, code: str, ranges: Sequence[tuple[int, int]]
) -> tuple[Insertion, ...]:
    """Insertions of the new code's ranges; what is left must be the original, to the character."""
    kept, at, chars = [], 0, 0
    insertions = []
    for start, end in ranges:
        kept.append(code[at:start])
        chars += start - at
        offset = len(_encoded(source, source.code[:chars]))
        insertions.append(Insertion(offset, _encoded(source, code[start:end], bom=False)))
        at = end
    kept.append(code[at:])
    if "".join(kept) != source.code:
        raise _impure(source)
    return tuple(insertions)


def _encoded(source: Source, text: str, *, bom: bool = True) -> bytes:
    encoding = source.module.encoding
    if encoding == "utf-8-sig" and not bom:
        encoding = "utf-8"
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise PatchError(
            f"`{text[error.start]}` cannot be written in {encoding}, the encoding of "
            f"`{source.file}`",
            state="refused",
            hints=("write it as an escape, like `\\u20ac`",),
            file=source.file,
        ) from None


def _impure(source: Source) -> PatchError:
    return PatchError(
        f"the edit of `{source.file}` would change more than it inserts",
        state="proof",
        notes=("this is a bug of the patching engine: nothing was changed",),
        file=source.file,
    )


class _Weaver:
    """Builds the new tree by copying only the ancestors of what changes."""

    def __init__(self, module: cst.Module, changes: Sequence[Change]) -> None:
        self.module = module
        self.marks: list[int] = []
        # New line to the last comment line above it, which was the old statement's.
        self.lines: dict[int, int] = {}
        self.kept: list[cst.CSTNode] = []  # ids stay true only while the nodes live
        self.at: dict[int, list[Change]] = {}
        self.below: dict[int, set[tuple[str, int | None]]] = {}
        for change in changes:
            self.at.setdefault(id(change.path[-1].node), []).append(change)
            for step in change.path[:-1]:
                self.below.setdefault(id(step.node), set()).add((step.field, step.index))

    def weave(self) -> cst.Module:
        module = self.copy(self.module)
        assert isinstance(module, cst.Module)
        return module

    def copy(self, node: cst.CSTNode) -> cst.CSTNode:
        changed: dict[str, object] = {}
        for field, index in self.below.get(id(node), ()):
            child = getattr(node, field)
            if index is None:
                changed[field] = self.copy(child)
            else:
                row = changed.setdefault(field, list(child))
                assert isinstance(row, list)
                row[index] = self.copy(child[index])
        if id(node) in self.at:
            body = changed.get("body", list(getattr(node, "body", ())))
            assert isinstance(body, list)
            small = isinstance(node, cst.SimpleStatementLine | cst.SimpleStatementSuite)
            put = self.join if small else self.stack
            changed["body"] = put(body, self.at[id(node)])
        return node.with_changes(**changed)

    def mark(self, node: cst.CSTNode) -> cst.CSTNode:
        self.marks.append(id(node))
        self.kept.append(node)
        return node

    def join(self, body: list[cst.CSTNode], changes: Sequence[Change]) -> list[cst.CSTNode]:
        """Small statements into a line; each new one brings its own semicolon."""
        last = body[-1]
        ends_open = isinstance(getattr(last, "semicolon", None), cst.Semicolon)
        row: list[tuple[cst.CSTNode, bool]] = []
        for before, node, after in _woven(body, changes):
            row += [*((new, True) for new in before), (node, False), *((n, True) for n in after)]
        out: list[cst.CSTNode] = []
        for number, (node, is_new) in enumerate(row):
            is_last = number == len(row) - 1
            if is_new:
                # With an open end (`a;`) the last one closes with a semicolon too, so that taking
                # our statements out can tell the file's semicolon from ours.
                closing = cst.Semicolon() if ends_open else cst.MaybeSentinel.DEFAULT
                semicolon = closing if is_last else _separator()
                out.append(self.mark(node.with_changes(semicolon=semicolon)))
            elif node is last and not is_last and not ends_open:
                semicolon = _separator()
                self.mark(semicolon)
                out.append(node.with_changes(semicolon=semicolon))
            else:
                out.append(node)
        return out

    def stack(self, body: list[cst.CSTNode], changes: Sequence[Change]) -> list[cst.CSTNode]:
        """Lines into a block, between a statement and the comments above it."""
        out: list[cst.CSTNode] = []
        for before, node, after in _woven(body, changes):
            new = [n.deep_clone() for n in before]
            above = getattr(node, "leading_lines", ())
            if new and above:
                own = getattr(new[0], "leading_lines", ())
                new[0] = new[0].with_changes(leading_lines=(*above, *own))
                self.lines[id(new[0])] = id(above[-1])
                node = node.with_changes(leading_lines=())
            out += [*map(self.mark, new), node, *(self.mark(n.deep_clone()) for n in after)]
        return out


def _separator() -> cst.Semicolon:
    return cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" "))


def _woven(
    body: Sequence[cst.CSTNode], changes: Sequence[Change]
) -> Iterator[tuple[Sequence[cst.CSTNode], cst.CSTNode, Sequence[cst.CSTNode]]]:
    """Each old statement with the new ones before and after it."""
    sides: dict[tuple[int | None, str], list[cst.CSTNode]] = {}
    for change in changes:
        sides.setdefault((change.path[-1].index, change.side), []).extend(change.nodes)
    for index, node in enumerate(body):
        yield sides.get((index, "before"), ()), node, sides.get((index, "after"), ())
