"""Properties that hold for any source, any statement in it and any set of edits."""

from __future__ import annotations

import ast

import libcst as cst
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import PatchError
from orchestrator.patching.engine import edit_file
from orchestrator.patching.making.removal import remove_ours
from orchestrator.patching.making.splice import apply_insertions, remove_insertions
from orchestrator.patching.source import read_source
from orchestrator.patching.structure.walk import scope_name, walk_block
from orchestrator.patching.wanted import Wanted
from tests.patching.making import FILE, make_anchor, make_wanted

SIMPLE = [
    "a = 1", "b = g(a, 'x')  # note", "a, b = b, a", "assert a", "pass", "g(\n{i}    a,\n{i})",
    "x = '''two\nlines'''", "a = 1; b = 2", "a = 1;", "del b", "return a", "raise a",
    "y = [a for a in b]",     "def h(): return a", "a = b \\\n{i}  + 1", "z = 'é…'",
]  # fmt: skip
HEADERS = [
    "if a:", "for i in b:", "while a:", "with a as b:", "try:", "def f(a, b=1):", "class K:",
    "async def f(self):", "match a:",
]  # fmt: skip


@st.composite
def blocks(draw: st.DrawFn, depth: int, indent: str, unit: str) -> str:
    """The text of a block of statements, indented, with blank lines and comments between."""
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        gap = draw(st.sampled_from(["", "", "\n", "{i}# about\n", "# at the margin\n", "{i}\n"]))
        header = draw(st.sampled_from(HEADERS)) if depth and draw(st.booleans()) else None
        if header is None:
            code = "{i}" + draw(st.sampled_from(SIMPLE)) + "\n"
        elif header == "match a:":
            inner = draw(blocks(depth - 1, indent + unit * 2, unit))
            code = f"{{i}}match a:\n{{i}}{unit}case [1]:\n{inner}"
        else:
            code = "{i}" + header + "\n" + draw(blocks(depth - 1, indent + unit, unit))
            if header == "try:":
                code += "{i}finally:\n" + draw(blocks(depth - 1, indent + unit, unit))
            elif header == "if a:" and draw(st.booleans()):
                code += "{i}else:  # otherwise\n" + draw(blocks(depth - 1, indent + unit, unit))
        lines.append((gap + code).replace("{i}", indent))
    return "".join(lines)


@st.composite
def sources(draw: st.DrawFn) -> bytes:
    """A file that Python compiles, in one of the layouts that real ones have."""
    unit = draw(st.sampled_from(["    ", "  ", "\t"]))
    head = draw(st.sampled_from(["", '"""Doc."""\n', "# note\n\nimport os\n", "import os\n",
                                 '"""Doc."""\nfrom __future__ import annotations\n']))  # fmt: skip
    text = head + draw(blocks(3, "", unit))
    if draw(st.booleans()):
        text = text.rstrip("\n")
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    data = text.encode()
    return b"\xef\xbb\xbf" + data if draw(st.booleans()) else data


def _compiles(data: bytes) -> bool:
    try:
        compile(data, FILE, "exec")
    except SyntaxError:
        return False
    return True


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=sources(), picks=st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=4))
def test_any_probes_in_any_source_come_out_again(
    data: bytes, picks: list[tuple[int, bool]]
) -> None:
    """Edits only insert, compile, can be taken out by journal and by structure, in any order."""
    if not _compiles(data):
        return
    source = read_source(data, FILE)
    statements = list(walk_block(source.module, (), nested=True))
    wanted = []
    for number, (pick, after) in enumerate(picks):
        statement = statements[pick % len(statements)]
        code = source.module.code_for_node(statement.node).strip().rstrip("; ")
        if not statement.is_small:
            code = source.line_text(source.line_of(statement.node)).strip()
        anchor = make_anchor("after" if after else "before", code, scope_name(statement))
        item = make_wanted(anchor, site=f"p{number}.1")
        if _state_of(data, item) is None:
            wanted.append(item)
    edited = edit_file(data, wanted)
    assert apply_insertions(data, edited.insertions) == edited.data
    assert remove_insertions(edited.data, edited.insertions) == data
    assert remove_ours(edited.data, FILE).data == data
    assert sorted(s for s in remove_ours(edited.data, FILE).sites if s) == sorted(
        item.edit.site for item in wanted
    )
    if edited.warnings == ():
        assert edited.data.count(b"\n") == data.count(b"\n")
    ast.parse(edited.data)
    back = edit_file(data, wanted[::-1])
    assert remove_ours(back.data, FILE).data == data
    assert sorted(s.line for s in back.sites) == sorted(s.line for s in edited.sites)


def _state_of(data: bytes, item: Wanted) -> str | None:
    """Why an edit does not fit; a statement that is there is never `not found`."""
    try:
        edit_file(data, [item])
    except PatchError as error:
        if error.state not in ("ambiguous", "refused"):
            raise
        return error.state
    return None


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    data=st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace"))
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Reading a source gives back its bytes or says why not; nothing else escapes."""
    try:
        source = read_source(data, FILE)
    except PatchError as error:
        if error.state not in ("parse", "lossy"):
            raise
        return
    assert isinstance(source.module, cst.Module)
    assert source.code.encode(source.module.encoding) == data
