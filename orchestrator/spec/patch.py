"""The patch file: where each edit goes, what it captures, what its author expects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from orchestrator.errors import FileError
from orchestrator.model.patch import (
    Action,
    Anchor,
    Capture,
    Decorate,
    Delete,
    Edit,
    Expectation,
    Import,
    Insert,
    Patch,
    Probe,
    Replace,
)
from orchestrator.model.source import Span
from orchestrator.spec.code import make_problem
from orchestrator.spec.document import Document, Int, Place
from orchestrator.spec.fields import (
    AnchorCode,
    AnchorExpression,
    Expression,
    Header,
    Label,
    Module,
    Name,
    PackageFile,
    PackageName,
    QualifiedName,
    Rate,
    Statements,
    Strict,
    Template,
    Text,
)
from orchestrator.spec.problems import raise_problems, validate
from orchestrator.spec.reader import read_document
from orchestrator.spec.rules import check_edits

# Below these keys stands code, in which a ` #` is more likely a lost part than a comment.
CODE_KEYS = frozenset(
    (
        *("before", "after", "within", "capture", "once_per", "when", "emit_if", "that", "insert"),
        *("replace", "delete", "decorate", "import", "=wrap"),
    )
)
# The keys of a place that name code.
_CODE_POSITIONS = ("before", "after", "replace", "delete", "wrap")


def _read_occurrence(value: Any) -> Any:
    """1-based; -1 is the last, 0 is all of them."""
    if isinstance(value, Int) and value >= 1:
        return int(value)
    if value in ("last", "all"):
        return -1 if value == "last" else 0
    raise make_problem("`occurrence` is a number from 1, `last` or `all`")


def _capture_kind(value: Any) -> str:
    return "<named>" if isinstance(value, dict) else "<text>"


Occurrence = Annotated[
    int,
    BeforeValidator(_read_occurrence),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"enum": ["last", "all"]}]}),
]
Count = Annotated[int, Field(ge=1)]
Captured = Annotated[
    Annotated[Expression, Tag("<text>")]
    | Annotated[
        Annotated[dict[Label, Expression], Field(min_length=1, max_length=1)], Tag("<named>")
    ],
    Discriminator(_capture_kind),
]


class WhereKeys(Strict):
    """One place in the source."""

    noun: ClassVar[str] = "a place"
    file: PackageFile | None = Field(None, description="File, from the package's own name on")
    module: Module | None = Field(None, description="The same as a dotted module name")
    scope: QualifiedName | None = Field(
        None, alias="in", description="Function or class, as `Class.method`; default: the module"
    )
    before: AnchorCode | None = Field(None, description="Statement before which the edit goes")
    after: AnchorCode | None = Field(None, description="Statement after which the edit goes")
    at: Literal["start", "return", "raise", "end"] | None = Field(
        None, description="A place of the function: its start, its ways out, or its end"
    )
    replace: AnchorCode | None = Field(None, description="Statement that is replaced")
    delete: AnchorCode | None = Field(None, description="Statement that goes")
    wrap: AnchorExpression | None = Field(None, description="Expression whose value is looked at")
    within: list[Header] = Field(
        [], description="Headers of statements around the anchor, outermost first"
    )
    occurrence: Occurrence | None = Field(
        None, description="Which of several equal statements: a number from 1, `last` or `all`"
    )
    of: Count | None = Field(None, description="How many equal statements there must be")
    which: Count | None = Field(None, description="Which definition of `in`, from 1, where several")


class ExpectKeys(Strict):
    """What the author of the patch predicts."""

    noun: ClassVar[str] = "an expectation"
    that: Expression = Field(description="Expression that must be true")
    when: Expression | None = Field(None, description="Only hits where this holds are asked")


class ProbeKeys(Strict):
    """An edit that only observes."""

    noun: ClassVar[str] = "a probe"
    capture: list[Captured] = Field(
        [], description="Expressions to record, each with its own text or a given name as label"
    )
    once_per: list[Captured] = Field(
        [], description="One record for each distinct set of values of these expressions"
    )
    max_keys: Annotated[int, Field(ge=1, le=10_000)] = Field(
        64, description="After so many distinct sets the site is spent"
    )
    limit: Count | None = Field(None, description="At most this many records per process")
    every: Count = Field(1, description="One of so many hits is recorded")
    rate: Rate | None = Field(None, description="Records per time and process, like `10/s`")
    when: Expression | None = Field(None, description="Only hits where this holds count")
    emit_if: Expression | None = Field(
        None, description="Only records where this holds are emitted, asked of the captured values"
    )
    ranks: list[Annotated[int, Field(ge=0)]] = Field(
        [], description="Only workers of these global ranks; default: all"
    )
    expect: dict[Label, ExpectKeys] = Field({}, description="Predictions by name")


class EditKeys(Strict):
    """One change at one place."""

    noun: ClassVar[str] = "an edit"
    where: Annotated[
        Annotated[WhereKeys, Tag("<WhereKeys>")]
        | Annotated[Annotated[list[WhereKeys], Field(min_length=1)], Tag("<list>")],
        Discriminator(lambda value: "<list>" if isinstance(value, list) else "<WhereKeys>"),
    ] = Field(description="The place, or alternatives for other releases: exactly one must fit")
    probe: ProbeKeys | None = Field(None, description="What to observe there")
    insert: Statements | None = Field(None, description="Statements to put there")
    replace: Template | None = Field(
        None, description="Statements in its place; `$NAME` stands for what it stood for there"
    )
    delete: Literal[True] | None = Field(None, description="`true`: the statement goes")
    returned: ProbeKeys | None = Field(
        None, alias="return", description="What to observe of a returned `value`"
    )
    wrap: ProbeKeys | None = Field(None, description="What to observe of the expression's `value`")
    decorate: Expression | None = Field(None, description="Decorator, put next to the definition")
    imported: Statements | None = Field(
        None, alias="import", description="Imports for the whole module"
    )


class PatchKeys(Strict):
    """Patch of sgldbg: a named set of edits; all of them are applied or none."""

    noun: ClassVar[str] = "a patch"
    patch: Name = Field(description="Name of the patch, equal to the name of its file")
    about: Text = Field(description="The question that the patch answers")
    package: PackageName = Field("sglang", description="Name of the top-level package")
    versions: str = Field("", description="Releases it is meant for, like `>=0.4.5`; default: all")
    edits: Annotated[list[EditKeys], Field(min_length=1)] = Field(description="The changes")


def read_patch(path: str | Path) -> Patch:
    """The patch in this file; raises `FileErrors` with everything that is wrong in it."""
    document = read_document(path, CODE_KEYS)
    problems: list[FileError] = []
    keys = validate(PatchKeys, document, problems)
    problems += check_edits(document)
    raise_problems(problems)
    assert keys is not None
    return Patch(
        name=keys.patch,
        about=keys.about,
        package=keys.package,
        versions=keys.versions.strip(),
        edits=tuple(_edit(keys, number, document) for number in range(len(keys.edits))),
        path=str(path),
        span=document.key_span(("patch",)),
        spans=document.dotted(),
    )


def _edit(keys: PatchKeys, number: int, document: Document) -> Edit:
    edit, place = keys.edits[number], ("edits", number)
    if isinstance(edit.where, list):
        anchors = [
            _anchor(where, (*place, "where", index), document)
            for index, where in enumerate(edit.where)
        ]
    else:
        anchors = [_anchor(edit.where, (*place, "where"), document)]
    if edit.decorate is not None or edit.imported is not None:
        word = "import" if edit.decorate is None else "decorate"
        anchors = [replace(anchor, position=word) for anchor in anchors]
    site = f"{keys.patch}.{number + 1}"
    action = _action(edit, place, document)
    return Edit(tuple(anchors), action, site, document.value_span(place))


def _action(edit: EditKeys, place: Place, document: Document) -> Action:
    """What the one key of an edit beside `where` asks for."""

    def span(key: str) -> Span:
        return document.value_span((*place, key))

    for key, probe in (("probe", edit.probe), ("return", edit.returned), ("wrap", edit.wrap)):
        if probe is not None:
            return _probe(probe, (*place, key), document, takes_value=key != "probe")
    if edit.insert is not None:
        return Insert(edit.insert, span("insert"))
    if edit.replace is not None:
        return Replace(edit.replace, span("replace"))
    if edit.decorate is not None:
        return Decorate(edit.decorate, span("decorate"))
    if edit.imported is not None:
        return Import(edit.imported, span("import"))
    return Delete(span("delete"))


def _anchor(where: WhereKeys, place: Place, document: Document) -> Anchor:
    """The place; an edit that needs no position gets its own later."""
    position = next((key for key in _CODE_POSITIONS if getattr(where, key) is not None), None)
    code = getattr(where, position) if position is not None else None
    file = where.file or f"{(where.module or '').replace('.', '/')}.py"
    return Anchor(
        file=file,
        scope=where.scope,
        position=position or where.at or "",
        code=code,
        occurrence=where.occurrence,
        of=where.of,
        within=tuple(where.within),
        which=where.which,
        span=document.value_span(place),
        code_span=document.value_span((*place, position)) if position is not None else None,
    )


def _probe(
    probe: ProbeKeys, place: Place, document: Document, *, takes_value: bool = False
) -> Probe:
    def single(key: str) -> Capture | None:
        code: str | None = getattr(probe, key)
        return Capture(key, code, document.value_span((*place, key))) if code else None

    return Probe(
        capture=_captures(probe.capture, (*place, "capture"), document),
        once_per=_captures(probe.once_per, (*place, "once_per"), document),
        max_keys=probe.max_keys,
        limit=probe.limit,
        every=probe.every,
        rate_per_s=probe.rate,
        when=single("when"),
        emit_if=single("emit_if"),
        ranks=tuple(probe.ranks),
        expect=tuple(
            Expectation(name, e.that, e.when, document.value_span((*place, "expect", name, "that")))
            for name, e in probe.expect.items()
        ),
        takes_value=takes_value,
        span=document.key_span(place),
    )


def _captures(
    items: list[str | dict[str, str]], place: Place, document: Document
) -> tuple[Capture, ...]:
    captures = []
    for index, item in enumerate(items):
        if isinstance(item, str):
            captures.append(Capture(item, item, document.value_span((*place, index))))
        else:
            for name, code in item.items():
                captures.append(Capture(name, code, document.value_span((*place, index, name))))
    return tuple(captures)
