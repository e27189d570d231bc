"""A verdict as lines of text, as a table for the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.model.record import Finding, Verdict, Worker, WorkerFinding

_STYLES = {"holds": "green", "fails": "bold red", "mixed": "bold red", "error": "red"}


def verdict_lines(verdict: Verdict) -> list[str]:
    """The verdict as plain lines: the question, a block per expectation, what is missing."""
    lines = [verdict.question] if verdict.question else []
    for finding in verdict.findings:
        lines += ["", _headline(finding)]
        rows = [(names, *_cells(worker)) for names, worker in fold(finding.workers)]
        width = max((len(row[0]) for row in rows), default=0)
        state_width = max((len(row[1]) for row in rows), default=0)
        for names, state, details in rows:
            for index, detail in enumerate(details or [""]):
                left = (names, state) if index == 0 else ("", "")
                lines.append(f"  {left[0]:<{width}}  {left[1]:<{state_width}}  {detail}".rstrip())
        if finding.advice:
            lines.append(f"  hint: {finding.advice}")
    return [*lines, "", *_remarks(verdict)]


def verdict_table(verdict: Verdict) -> RenderableType:
    """The same for a terminal; colour repeats what the words say."""
    parts: list[RenderableType] = []
    if verdict.question:
        parts.append(Text(verdict.question, style="bold"))
    for finding in verdict.findings:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
        for name, worker in fold(finding.workers):
            state, details = _cells(worker)
            style = _STYLES.get(worker.state, "yellow")
            table.add_row(Text("  " + name), Text(state, style=style), Text("\n".join(details)))
        head = Text(_headline(finding), style=_STYLES.get(finding.state, "yellow"))
        parts += [Text(), head, table]
        if finding.advice:
            parts.append(Text(f"  hint: {finding.advice}"))
    return Group(*parts, Text(), *(Text(line) for line in _remarks(verdict)))


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """The same facts as data, for `--json` and `verdict.json`."""
    return {"holds": verdict.holds, **asdict(verdict)}


def fold(findings: Sequence[WorkerFinding]) -> list[tuple[str, WorkerFinding]]:
    """Workers of which the same is said, under one name: `gpu[01-02] TP0, TP1`."""
    groups: dict[tuple[object, ...], list[WorkerFinding]] = {}
    for finding in findings:
        same = (finding.state, finding.held, finding.failed, finding.shown, finding.why)
        groups.setdefault(same, []).append(finding)
    return [(_names([f.worker for f in group]), group[0]) for group in groups.values()]


def _names(workers: Sequence[Worker]) -> str:
    """Labels by host: `gpu01 TP0, TP1; gpu02 TP2, TP3`."""
    hosts: dict[str, list[str]] = {}
    for worker in workers:
        hosts.setdefault(worker.host, []).append(worker.label)
    return "; ".join(f"{host} {', '.join(labels)}" for host, labels in hosts.items())


def _headline(finding: Finding) -> str:
    that = f" ({finding.that})" if finding.that else ""
    return f"{finding.patch}: {finding.expectation} {_verb(finding.state)}{that}"


def _verb(state: str) -> str:
    return {"mixed": "is mixed", "error": "could not be evaluated", "never reached": state}.get(
        state, state
    )


def _cells(finding: WorkerFinding) -> tuple[str, list[str]]:
    """State with its counts, and what stands beside it."""
    counts = {
        "holds": f"holds {finding.held}x",
        "fails": f"fails {finding.failed}x",
        "mixed": f"holds {finding.held}x, fails {finding.failed}x",
    }
    details = [finding.why] if finding.why else []
    return counts.get(finding.state, finding.state), [*details, *finding.shown]


def _remarks(verdict: Verdict) -> list[str]:
    lines = []
    if verdict.missing:
        lines.append(f"without a record that counts: {_names(verdict.missing)}")
    if verdict.short:
        few = [Worker(w.host, f"{w.label} ({count})", w.pid) for w, count in verdict.short]
        lines.append(f"fewer than the {verdict.count} records that `until` asks for: {_names(few)}")
    if verdict.cut_short:
        lines.append("the session ended early; this is what was collected until then")
    elif not verdict.until_met:
        lines.append("`until` was not met in time; this is what was collected")
    if verdict.damaged:
        lines.append(f"{verdict.damaged} damaged records could not be read")
    count = "1 record counts" if verdict.records == 1 else f"{verdict.records} records count"
    return [*lines, f"{count}; verdict: {_word(verdict)}"]


def _word(verdict: Verdict) -> str:
    """The whole in one word: the worst finding, in the order in which a user must care."""
    states = {finding.state for finding in verdict.findings}
    for state in ("fails", "mixed", "error", "never reached"):
        if state in states and not (verdict.cut_short and state == "never reached"):
            return state
    if not verdict.until_met:
        return "not enough was seen"
    return "holds" if states else "enough was seen"
