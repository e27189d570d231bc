"""Records, the workers they come from, and the verdict on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The note with which a probe says that its rank is not among `ranks`; see record.md.
_NOT_ASKED = re.compile(r"rank \d+ is not asked")


@dataclass(frozen=True, slots=True)
class Record:
    """One observation that a probe emitted, as `docs/reference/record.md` describes it.

    `kind` is `import` (a patched module was imported), `hit`, `skip` (reached, not recorded, with
    the reason), `spent` or `error`. `seq` counts per process and site, from 1; `phase` is `start`,
    `warmup` or `armed`. `expect` maps an expectation's name to true, false, or null where its
    `when` did not hold; what could not be evaluated stands in `errors`. `generation` is that of the
    probe table that was asked.
    """

    session: str
    kind: str
    site: str
    host: str
    pid: int
    title: str
    seq: int
    phase: str
    mono_s: float
    wall_s: float
    ranks: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[Any, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    expect: Mapping[str, bool | None] = field(default_factory=dict)
    requests: tuple[str, ...] = ()
    note: str = ""
    generation: int = 0

    @property
    def patch(self) -> str:
        """The patch that the site belongs to."""
        return self.site.rsplit(".", 1)[0]

    @property
    def is_left_out(self) -> bool:
        """Whether it only says that its worker is not among the `ranks` that are asked."""
        return self.kind == "skip" and _NOT_ASKED.fullmatch(self.note) is not None


@dataclass(frozen=True, slots=True, order=True)
class Worker:
    """One process of a server: `label` is `TP0`, `TP1`, `detokenizer`, ... or `pid 1234`."""

    host: str
    label: str
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerFinding:
    """What one worker's records say of one expectation.

    `state` is `holds`, `fails`, `mixed`, `error`, `never reached` or `never imported`; `held` and
    `failed` count armed hits; `shown` are short texts of distinct values; `why` explains silence.
    """

    worker: Worker
    state: str
    held: int = 0
    failed: int = 0
    shown: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one expectation: `holds`, `fails`, `mixed`, `error`, `never reached`."""

    patch: str
    expectation: str
    that: str
    state: str
    workers: tuple[WorkerFinding, ...]
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a session's question.

    `until_met` is false where the time ran out, and where the session was `cut_short` before; then
    `short` has the workers with some records, but fewer than the `count` that `until` asks of one.
    """

    question: str
    findings: tuple[Finding, ...]
    until_met: bool
    records: int
    missing: tuple[Worker, ...] = ()
    damaged: int = 0
    cut_short: bool = False
    count: int = 1
    short: tuple[tuple[Worker, int], ...] = ()

    @property
    def holds(self) -> bool:
        """Every expectation holds and enough was seen."""
        return self.until_met and all(f.state == "holds" for f in self.findings)
