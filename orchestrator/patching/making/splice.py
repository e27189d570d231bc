"""Puts new nodes into a tree and ships the difference, spliced into the original bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from orchestrator.errors import PatchError
from orchestrator.model.plan import Insertion
from orchestrator.patching.making.weaving import Weaver, Woven
from orchestrator.patching.source import Marker, Source, generate
from orchestrator.patching.structure.walk import Path

New = cst.BaseSmallStatement | cst.SimpleStatementLine | cst.BaseCompoundStatement


@dataclass(frozen=True, slots=True)
class Change:
    """New nodes at one place; `path` leads to what stands there.

    `before` and `after`: small statements join the line of a small one; lines and compound
    statements stand beside a line or compound statement. `replace`: the same kinds take its place.
    `wrap`: the one node is a call whose second argument becomes the expression that stands there.
    `decorate`: the one node is a decorator, put next to the definition.
    """

    path: Path
    side: str
    nodes: tuple[New | cst.Call | cst.Decorator, ...]

    @property
    def top(self) -> int:
        """Which top-level statement of the module the change goes to."""
        index = self.path[0].index
        assert index is not None
        return index


@dataclass(frozen=True, slots=True)
class _Range:
    """A part of the new code, and what of the old one it takes the place of."""

    start: int
    end: int
    removed: str = ""


def splice(source: Source, changes: Sequence[Change]) -> tuple[bytes, tuple[Insertion, ...]]:
    """The patched bytes, and the insertions that make them of the original.

    Changes at one place keep their order. Every new byte is generated from the new tree; the rest
    is the original's own. Statements that no change touches are not generated again: reading the
    source did that. Raises `PatchError` with state `proof` where the difference is more than what
    was declared, and `refused` where the file's encoding lacks a character.
    """
    module, woven = _weave(source, changes)
    code, marker = generate(module, woven.wanted())
    offsets = marker.offsets()
    ranges = [
        *_inserted(woven, marker, offsets),
        *_replaced(source, woven, marker, offsets),
    ]
    ranges.sort(key=lambda r: (r.start, r.end))
    insertions = _insertions(source, code, _closed(source, code, _merged(ranges)))
    after = apply_insertions(source.data, insertions)
    if after != _encoded(source, code):
        raise _impure(source)
    return after, insertions


def _weave(source: Source, changes: Sequence[Change]) -> tuple[cst.Module, Woven]:
    """The new tree; calls around expressions get parentheses only where they must (`return(x)`)."""
    for fences in (0, 1):
        try:
            return Weaver(changes, source.code_of, fences=fences).weave(source.module)
        except cst.CSTValidationError:
            continue
    return Weaver(changes, source.code_of, fences=2).weave(source.module)


def _inserted(woven: Woven, marker: Marker, offsets: Sequence[int]) -> list[_Range]:
    last = len(offsets) - 1  # LibCST drops the last end of line again where the file has none
    ranges = []
    for node in woven.marks:
        start = offsets[marker.begins[node]]
        if node in woven.lines:  # comments above the statement stay above what is inserted
            start = offsets[marker.ends[woven.lines[node]]]
        ranges.append(_Range(start, offsets[min(marker.ends[node], last)]))
    for around in woven.wraps:
        begin, end = offsets[marker.begins[around.call]], offsets[marker.ends[around.call]]
        inner = offsets[marker.begins[around.inner]] + around.grouped
        outer = offsets[marker.ends[around.inner]] - around.grouped
        ranges += [_Range(begin, inner), _Range(outer, end)]
    return ranges


def _replaced(source: Source, woven: Woven, marker: Marker, offsets: Sequence[int]) -> list[_Range]:
    ranges = []
    for one in woven.replaced:
        start = offsets[marker.begins[one.new[0]]]
        end = offsets[min(marker.ends[one.new[-1]], len(offsets) - 1)]
        begin, stop = source.spans[one.old]
        begin = source.skip_lines(begin, one.left)
        ranges.append(_Range(start, end, source.code[begin:stop]))
    return ranges


def apply_insertions(data: bytes, insertions: Sequence[Insertion]) -> bytes:
    """The original bytes with everything inserted; insertions are in order of their offsets."""
    pieces, at = [], 0
    for insertion in insertions:
        pieces += [data[at : insertion.offset], insertion.data]
        at = insertion.offset + len(insertion.removed)
    return b"".join([*pieces, data[at:]])


def remove_insertions(data: bytes, insertions: Sequence[Insertion]) -> bytes | None:
    """The bytes without the insertions; `None` where they are not what stands there."""
    pieces, at, shift = [], 0, 0
    for insertion in insertions:
        start = insertion.offset + shift
        end = start + len(insertion.data)
        if data[start:end] != insertion.data or start < at:
            return None
        pieces += [data[at:start], insertion.removed]
        at, shift = end, shift + len(insertion.data) - len(insertion.removed)
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
    return [(r.start, r.end) for r in _merged([_Range(*pair) for pair in ranges])]


def _merged(ranges: Sequence[_Range]) -> list[_Range]:
    joined: list[_Range] = []
    for one in ranges:
        if joined and one.start <= joined[-1].end:
            last = joined.pop()
            end, removed = max(one.end, last.end), last.removed + one.removed
            joined.append(_Range(last.start, end, removed))
        else:
            joined.append(one)
    return joined


def _closed(source: Source, code: str, ranges: Sequence[_Range]) -> Sequence[_Range]:
    if not ranges or ranges[-1].removed:
        return ranges
    *others, last = ranges
    ((start, end),) = final_line(source, code, [(last.start, last.end)])
    return [*others, _Range(start, end)]


def _insertions(source: Source, code: str, ranges: Sequence[_Range]) -> tuple[Insertion, ...]:
    """Insertions of the new code's ranges; what is left must be the original, to the character."""
    kept, at, chars = [], 0, 0
    insertions = []
    for one in (_trimmed(code, r) for r in ranges):
        kept += [code[at : one.start], one.removed]
        chars += one.start - at
        offset = len(_encoded(source, source.code[:chars]))
        chars, at = chars + len(one.removed), one.end
        new, old = code[one.start : one.end], one.removed
        if new or old:
            insertions.append(
                Insertion(
                    offset,
                    _encoded(source, new, bom=False),
                    _encoded(source, old, bom=False),
                )
            )
    kept.append(code[at:])
    if "".join(kept) != source.code:
        raise _impure(source)
    return tuple(insertions)


def _trimmed(code: str, one: _Range) -> _Range:
    """The range without what its ends share with the code that it takes the place of."""
    new, old = code[one.start : one.end], one.removed
    most = min(len(new), len(old))
    head = next((i for i in range(most) if new[i] != old[i]), most)
    most -= head
    tail = next((i for i in range(most) if new[-1 - i] != old[-1 - i]), most)
    return _Range(one.start + head, one.end - tail, old[head : len(old) - tail])


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
        f"the edit of `{source.file}` would change more than was asked for",
        state="proof",
        notes=("this is a bug of the patching engine: nothing was changed",),
        file=source.file,
    )
