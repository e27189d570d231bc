"""The proofs refuse what an edit must not do, also where this Python cannot read the file."""

from __future__ import annotations

import pytest

from orchestrator.errors import PatchError
from orchestrator.model.patch import Insert
from orchestrator.model.plan import Insertion
from orchestrator.patching import source as source_module
from orchestrator.patching.making.removal import remove_ours
from orchestrator.patching.making.splice import apply_insertions
from orchestrator.patching.proofs import prove
from orchestrator.patching.source import read_source
from tests.patching.making import FILE, edit_one, make_anchor

SOURCE = b"import os\ndef f(x):\n    a = x\n    return a\n"
HIT = b'_sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())'


def _prove(*insertions: Insertion, lines_stay: bool = True) -> str:
    after = apply_insertions(SOURCE, insertions)
    with pytest.raises(PatchError) as caught:
        prove(read_source(SOURCE, FILE), after, insertions, probes_only=True, lines_stay=lines_stay)
    assert caught.value.state == "proof"
    return caught.value.message.removeprefix(f"the edit of `{FILE}` was refused: ")


def test_another_statement_is_not_ours() -> None:
    """Code beside the probes is found in the tree."""
    assert _prove(Insertion(29, b"; b = 1")) == (
        "the code without the probes is not the original code"
    )


def test_a_probe_that_moves_lines_unsaid() -> None:
    """Where lines are to stay, a line more is found."""
    assert _prove(Insertion(30, b"    " + HIT + b"\n")) == (
        "the code without the probes is not the original code"
    )


def test_a_probe_with_a_lambda_changes_scopes() -> None:
    """A scope more, or a local that becomes a cell, is found in the tables of names."""
    hit = b'; _sgldbg.off("p.1") or _sgldbg.hit("p.1", lambda: a)'
    assert _prove(Insertion(29, hit)) == (
        "the edit changes what names mean: the scopes inside `f` are not the same"
    )


def test_a_result_that_does_not_compile() -> None:
    """The compiler's reason and line are told."""
    assert _prove(Insertion(29, b"; await x")) == (
        "the result does not compile: 'await' outside async function in line 3"
    )


def test_insertions_that_are_not_what_was_inserted() -> None:
    """The original must come back from the insertions alone."""
    with pytest.raises(PatchError) as caught:
        prove(
            read_source(SOURCE, FILE),
            SOURCE,
            [Insertion(0, b"x")],
            probes_only=True,
            lines_stay=True,
        )
    assert caught.value.message.endswith(
        "taking the insertions out does not give the original bytes"
    )


def test_syntax_of_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this Python cannot read a file, structure proves what it can; the host's decides."""
    monkeypatch.setattr(source_module, "read_python", lambda data: None)
    edited = edit_one(SOURCE, make_anchor("after", "a = x", "f"))
    assert edited.warnings == (
        f"`{FILE}` is not syntax that this Python reads: names and syntax of its edits are left "
        "to the interpreter on the host",
    )
    assert remove_ours(edited.data, FILE).data == SOURCE
    with pytest.raises(PatchError) as caught:
        edit_one(b"def f(locals):\n    a = locals\n", make_anchor("after", "a = locals", "f"))
    assert caught.value.state == "refused"


def test_code_that_binds_names_is_told() -> None:
    """Inserted code may bind names; which ones is a warning."""
    edited = edit_one(SOURCE, make_anchor("after", "a = x", "f"), Insert("b = lambda: a"))
    assert edited.warnings[1:] == (
        f"inserted code in `{FILE}`: `b` in `f` is local, was not there",
        f"inserted code in `{FILE}`: the scopes inside `f` are not the same",
    )


SPACE = "Python reads it, LibCST does not: it wants a space behind each keyword"


@pytest.mark.parametrize(
    ("source", "note"),
    [
        (b"x = 1\ny = (\n", "the parser stopped at line 3, column 0"),
        (b"x = 1\n\0\n", "line 2: '\\0' is not a valid character in this position"),
        (b"x = 1\ny = $\n", "line 2: '$' is not a valid character in this position"),
        (b"if x:\n\ty = 1\n        z = 1\n", "line 3: inconsistent mixing of tabs and spaces"),
        (b"x = 1\ny = '''a\n\n", "line 2: unterminated triple-quoted string literal"),
        (b"def f():\n  if x: pass\n  return(lambda: 1)\n", f"line 3: {SPACE}"),
        (b"x = 1\ny = not(a if b else c)\n", f"line 2: {SPACE}"),
        (b"def f():\n    return.5\n", f"line 2: {SPACE}"),
    ],
    ids=["end", "nul", "sign", "tabs", "text", "lambda", "condition", "number"],
)
def test_what_cannot_be_parsed_names_its_line(source: bytes, note: str) -> None:
    """Also where LibCST's tokenizer gives the reason alone."""
    with pytest.raises(PatchError) as caught:
        read_source(source, FILE)
    assert (caught.value.state, caught.value.notes) == ("parse", (note,))
