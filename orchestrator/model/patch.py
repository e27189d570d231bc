"""A patch: a named set of edits, each at one anchor, with what it captures and expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.model.source import Span

MAX_CODE = 10_000  # characters; longer text is no anchor, and deep text can crash parsers


@dataclass(frozen=True, slots=True)
class Anchor:
    """The description of the one place where an edit goes.

    `file` is relative to the directory that holds the package (`sglang/srt/...`), with slashes.
    `scope` is the qualified name after the key `in`; `None` is the module itself. `position` is
    one of `before`, `after`, `replace`, `delete` (then `code` is the anchor statement), `wrap`
    (then `code` is an expression), or `start`, `end`, `return`, `raise`, `decorate`, `import`
    (then `code` is `None`). `occurrence` is 1-based and goes with `of`, the number of equal places
    that must exist; -1 is the last, 0 is all of them. `within` holds headers of enclosing
    statements, outermost first. `which` selects among several definitions of `scope`: 1-based.
    """

    file: str
    scope: str | None
    position: str
    code: str | None
    occurrence: int | None = None
    of: int | None = None
    within: tuple[str, ...] = ()
    which: int | None = None
    span: Span | None = field(default=None, compare=False)
    code_span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the patch author predicts: `that` holds at every hit where `when` holds."""

    name: str
    that: str
    when: str | None = None
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Capture:
    """One Python expression, evaluated where the probe stands; `name` labels its value."""

    name: str
    expression: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Probe:
    """An edit that only observes. A `None` or empty limit does not limit.

    `once_per` are expressions: one record for each distinct tuple of their values, at most
    `max_keys` of them. `every` lets 1 of N qualifying hits through, `rate_per_s` bounds records
    per second and process. `ranks` are global ranks. `takes_value`: the probe stands around an
    expression, whose value its own expressions know as `value`.
    """

    capture: tuple[Capture, ...] = ()
    once_per: tuple[Capture, ...] = ()
    max_keys: int = 64
    limit: int | None = None
    every: int = 1
    rate_per_s: float | None = None
    when: Capture | None = None
    emit_if: Capture | None = None
    ranks: tuple[int, ...] = ()
    expect: tuple[Expectation, ...] = ()
    takes_value: bool = False
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Insert:
    """Statements to put at the anchor as they are; the code's own indentation is removed."""

    code: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Replace:
    """Statements that take the anchor's place; its metavariables stand for what they matched."""

    code: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Delete:
    """The anchor goes; `pass` takes its place, so that blocks stay whole and lines stay."""

    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Decorate:
    """An expression that becomes the decorator next to the definition."""

    code: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Import:
    """Imports for the whole module, behind its docstring and its imports from `__future__`."""

    code: str
    span: Span | None = field(default=None, compare=False)


Action = Probe | Insert | Replace | Delete | Decorate | Import


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: the alternatives for different releases, exactly one of which must fit."""

    where: tuple[Anchor, ...]
    action: Action
    site: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Patch:
    """A named set of edits; all of them are applied or none. Sites are `<patch>.<n>`, n from 1."""

    name: str
    about: str
    package: str
    versions: str
    edits: tuple[Edit, ...]
    path: str = ""
    span: Span | None = field(default=None, compare=False)
    spans: Mapping[str, Span] = field(default_factory=dict, compare=False)

    def files(self) -> tuple[str, ...]:
        """Every file that one of the alternatives may stand in, in order of first mention."""
        return tuple(dict.fromkeys(a.file for e in self.edits for a in e.where))

    def changes_code_of(self, file: str) -> bool:
        """Whether an edit that is no probe may stand in this file, and bring names to others."""
        return any(
            not isinstance(e.action, Probe) and any(a.file == file for a in e.where)
            for e in self.edits
        )
