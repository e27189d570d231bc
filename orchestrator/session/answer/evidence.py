"""What one worker's records say: of one expectation, in short texts, and why they are silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.logs.parse import clean
from orchestrator.model.patch import Probe
from orchestrator.model.record import Record, Worker, WorkerFinding

_MOST_SHOWN = 12
_ONLY_BEFORE_READY = "seen only before ready"


@dataclass(frozen=True, slots=True)
class Question:
    """One expectation of one site; `name` is `None` where the probe expects nothing in words."""

    patch: str
    site: str
    file: str
    probe: Probe
    name: str | None
    that: str


def weigh(question: Question, worker: Worker, records: Sequence[Record]) -> WorkerFinding:
    """The finding on one worker, from its records of the question's patch.

    Only hits of phase `armed` count; earlier ones explain silence.
    """
    mine = [r for r in records if r.site == question.site]
    hits = [r for r in mine if r.kind == "hit" and r.phase == "armed"]
    answers = [_answer(question, r) for r in hits]
    held, failed = answers.count("holds"), answers.count("fails")
    troubles = _troubles(question, mine)
    if held and failed:
        state = "mixed"
    elif failed:
        state = "fails"
    elif troubles:
        state = "error"
    elif held:
        state = "holds"
    else:
        state = "never reached" if records else "never imported"
    why = "; ".join(troubles)
    if state in ("never reached", "never imported"):
        why = _silence(question, mine)
    shown = shown_values(question, hits or [r for r in mine if r.kind in ("hit", "skip")])
    return WorkerFinding(worker, state, held, failed, shown, why)


def _answer(question: Question, record: Record) -> str:
    """`holds`, `fails`, `error`, or `not asked`."""
    if question.name is None:
        return "holds"
    if question.name in record.expect:
        value = record.expect[question.name]
        return "not asked" if value is None else "holds" if value else "fails"
    return "error" if question.name in record.errors else "not asked"


def _troubles(question: Question, records: Sequence[Record]) -> list[str]:
    """Distinct texts of what could not be evaluated while it counted."""
    found = []
    for record in records:
        if record.phase != "armed":
            continue
        if record.kind == "error":
            found += [f"{name}: {text}" for name, text in record.errors.items()]
        elif record.kind == "hit" and _answer(question, record) == "error":
            found.append(record.errors[question.name or ""])
    return [one_line(text) for text in dict.fromkeys(found)][:3]


def _silence(question: Question, mine: Sequence[Record]) -> str:
    """Why a worker has no answer, from the nearest reason to the farthest."""
    armed = [r for r in mine if r.phase == "armed"]
    hits = [r for r in armed if r.kind == "hit"]
    if hits:
        times = "once" if len(hits) == 1 else f"{len(hits)} times"
        return f"recorded {times}, but `when` of the expectation never held"
    skips = list(dict.fromkeys(one_line(r.note) for r in armed if r.kind == "skip"))
    if skips:
        return f"reached, but not counted: {', '.join(skips)}"
    if any(r.kind in ("hit", "skip", "spent") for r in mine):
        return _ONLY_BEFORE_READY
    return "imported, never reached" if mine else "not imported"


def shown_values(question: Question, hits: Sequence[Record]) -> tuple[str, ...]:
    """Distinct short texts, in order of first sight: `EXTEND: hidden_states 192, embeds 64`.

    In front stand the values of `once_per` that the rest does not show; hits of which the
    expectation was not asked say so.
    """
    names = [code.expression for code in question.probe.once_per]
    rows: Counter[str] = Counter()
    for record in hits:
        keys = dict(zip(names, record.keys, strict=False))
        label = "/".join(text for n, v in keys.items() if (text := _key_text(n, v)))
        values = [
            text
            for name, value in record.values.items()
            if name not in keys and (text := value_text(name, value))
        ]
        row = f"{label}: {', '.join(values)}" if label and values else label or ", ".join(values)
        if not row:
            continue  # a hit that was not counted carries no values
        if question.name is not None and _answer(question, record) == "not asked":
            row += " (not asked)"
        rows[one_line(row)] += 1
    shown = list(rows)
    if len(shown) > _MOST_SHOWN:
        return (*shown[:_MOST_SHOWN], f"and {len(shown) - _MOST_SHOWN} more")
    return tuple(shown)


def _key_text(name: str, value: Any) -> str:
    """A key as it stands in front of a row; widths are left to the values."""
    if ".shape[" in name or value is None:
        return ""
    if isinstance(value, str):
        return value.rpartition(".")[2] if value.replace(".", "").isidentifier() else value
    return f"{name} {value}"


def value_text(name: str, value: Any) -> str:
    """One captured value, short: a tensor as its last width, with what is alarming in it."""
    if not isinstance(value, dict):
        return f"{name} {value}"
    if value.get("t") != "tensor":
        text = str(value.get("text", ""))
        return f"{name} {text.rpartition('.')[2] if value.get('t') == 'enum' else text}"
    shape = value.get("shape") or []
    alarms = [f"{value[k]} {word}" for k, word in (("nan", "NaN"), ("inf", "Inf")) if value.get(k)]
    if 0 in shape:
        alarms.append("empty")
    head = value.get("head")
    whole = str(value.get("dtype", "")).startswith(("int", "uint"))
    if len(shape) < 2 and whole and isinstance(head, list):
        text = str(head) if value.get("n", 0) <= len(head) else f"{str(head)[:-1]}, ...]"
    else:
        text = str(shape[-1]) if shape else str(head[0] if head else "scalar")
    return f"{name} {text}" + (f" ({', '.join(alarms)})" if alarms else "")


def one_line(text: str) -> str:
    """A host's text that is safe to show in one line."""
    return " ".join(clean(text).split())
