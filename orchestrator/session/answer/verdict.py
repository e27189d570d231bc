"""When enough was seen, and what all the records say of what the patches' authors expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from orchestrator.logs.parse import is_scheduler, label_of_title
from orchestrator.model.patch import Patch, Probe
from orchestrator.model.plan import Site
from orchestrator.model.record import Finding, Record, Verdict, Worker, WorkerFinding
from orchestrator.model.session import Session
from orchestrator.session.answer.evidence import Question, weigh
from orchestrator.session.steps.graphs import ADVICE

_EVERY = "every worker"


def enough(session: Session, records: Sequence[Record], workers: Sequence[Worker]) -> bool:
    """Whether `until` is met: armed hits of its patch, from each worker that is asked for one.

    `workers` are those known from the process tree; whoever wrote a record is one, too.
    """
    until = session.until
    if until is None:
        return True
    counts = _armed_hits(until.records, records)
    if until.from_workers != _EVERY:
        return any(count >= until.count for count in counts.values())
    needed = needed_workers(until.records, records, workers)
    return bool(needed) and all(counts[w.host, w.pid] >= until.count for w in needed)


def judge(
    session: Session,
    patches: Sequence[Patch],
    plan_sites: Sequence[Site],
    records: Sequence[Record],
    workers: Sequence[Worker],
    damaged: int,
    until_met: bool,
    cut_short: bool = False,
) -> Verdict:
    """The verdict on every expectation of every probe that was placed.

    A probe that expects nothing in words is judged by whether it recorded anything. Of a session
    that was `cut_short` silence says nothing, so no advice is given.
    """
    every = session.until is None or session.until.from_workers == _EVERY
    findings = tuple(
        _finding(question, records, workers, every) for question in questions(patches, plan_sites)
    )
    if cut_short:
        findings = tuple(replace(f, advice="") if f.state != "error" else f for f in findings)
    asked = [session.until.records] if session.until else [patch.name for patch in patches]
    missing = {
        worker
        for patch in asked
        for worker in needed_workers(patch, records, workers)
        if not _armed_hits(patch, records)[worker.host, worker.pid]
    }
    return Verdict(
        question=session.question,
        findings=findings,
        until_met=until_met,
        records=sum(r.kind == "hit" and r.phase == "armed" for r in records),
        missing=tuple(sorted(missing)),
        damaged=damaged,
        cut_short=cut_short,
        count=session.until.count if session.until else 1,
        short=() if until_met else tuple(_short(session, records, workers)),
    )


def _short(
    session: Session, records: Sequence[Record], workers: Sequence[Worker]
) -> Iterator[tuple[Worker, int]]:
    """Who has some of the records that `until` waits for, but not all of them."""
    until = session.until
    if until is None:
        return
    counts = _armed_hits(until.records, records)
    for worker in needed_workers(until.records, records, workers):
        if 0 < counts[worker.host, worker.pid] < until.count:
            yield worker, counts[worker.host, worker.pid]


def questions(patches: Sequence[Patch], plan_sites: Sequence[Site]) -> list[Question]:
    """What the probes that were placed are to answer, in order of the patches."""
    files = {site.site: site.file for site in plan_sites}
    found = []
    for patch in patches:
        for edit in patch.edits:
            probe = edit.action
            if not isinstance(probe, Probe) or edit.site not in files:
                continue
            common = (patch.name, edit.site, files[edit.site], probe)
            found += [Question(*common, e.name, e.that) for e in probe.expect]
            if not probe.expect:
                found.append(Question(*common, None, ""))
    return found


def needed_workers(
    patch: str, records: Sequence[Record], workers: Sequence[Worker]
) -> tuple[Worker, ...]:
    """Whom `every worker` means for this patch.

    Schedulers run the model: where one of them imported a patched module, or nobody did, all of
    them are asked, but for ranks that the probe leaves out. Other processes are asked once they
    reach a site: SGLang's main process imports the schedulers' modules, and the detokenizer the
    tokenizer's, without ever running them.
    """
    known = label_workers(records, workers)
    mine = [r for r in records if r.patch == patch]
    imported = {(r.host, r.pid) for r in mine}
    reached = {(r.host, r.pid) for r in mine if r.kind != "import"}
    schedulers = [key for key, worker in known.items() if is_scheduler(worker.label)]
    needed = set(reached)
    if not imported or imported & set(schedulers):
        # One without a label may be a scheduler that has no title yet.
        needed |= {*schedulers, *(k for k in imported if known[k].label.startswith("pid "))}
    left_out = {(r.host, r.pid) for r in mine if r.is_left_out}
    needed -= left_out - set(_armed_hits(patch, records))
    return tuple(sorted(known[key] for key in needed or imported - left_out))


def label_workers(
    records: Sequence[Record], workers: Sequence[Worker]
) -> dict[tuple[str, int], Worker]:
    """All workers by host and pid, each under the best label known: titles are set late."""
    known = {(w.host, w.pid): w for w in workers}
    for record in records:
        key = (record.host, record.pid)
        worker = known.get(key, Worker(record.host, f"pid {record.pid}", record.pid))
        label = label_of_title(record.title)
        if label and worker.label.startswith("pid "):
            worker = replace(worker, label=label)
        known[key] = worker
    return known


def _armed_hits(patch: str, records: Iterable[Record]) -> Counter[tuple[str, int]]:
    """Hits that count, by host and pid."""
    return Counter(
        (r.host, r.pid)
        for r in records
        if r.patch == patch and r.kind == "hit" and r.phase == "armed"
    )


def _finding(
    question: Question, records: Sequence[Record], workers: Sequence[Worker], every: bool
) -> Finding:
    known = label_workers(records, workers)
    found = []
    for worker in needed_workers(question.patch, records, workers):
        mine = [r for r in records if r.patch == question.patch and known[r.host, r.pid] == worker]
        found.append(weigh(question, worker, mine))
    state = _state([f.state for f in found], every)
    return Finding(
        patch=question.patch,
        expectation=question.name or "recorded",
        that=question.that,
        state=state,
        workers=tuple(found),
        advice=_advice(question, state, found),
    )


def _state(states: Sequence[str], every: bool) -> str:
    """One word for all workers; silence of some spoils `holds` only where all were asked."""
    if "mixed" in states or ("fails" in states and "holds" in states):
        return "mixed"
    for state in ("fails", "error"):
        if state in states:
            return state
    silent = [s for s in states if s.startswith("never")]
    if "holds" in states and not (silent and every):
        return "holds"
    return "never reached"


def _advice(question: Question, state: str, found: Sequence[WorkerFinding]) -> str:
    """What to try next; empty where there is an answer."""
    if state == "error":
        return "correct the expression that could not be evaluated"
    if state != "never reached":
        return ""
    silent = [f for f in found if f.state.startswith("never")]
    whys = " ".join(f.why for f in silent)
    if any(f.state == "holds" for f in found):
        return "where not every worker runs this code, say `from: any worker` in `until`"
    if "graph" in whys:
        return (
            f"the code runs inside a CUDA graph, where no Python runs after its capture: {ADVICE}"
        )
    if "before ready" in whys:
        return (
            "send requests that reach this place; if they do, it runs inside a CUDA graph:"
            f" {ADVICE}"
        )
    if "of the expectation never held" in whys:
        return "send requests for which `when` of the expectation holds, or change it"
    if "`when` is false" in whys or "`emit_if` is false" in whys:
        return "send requests for which the probe's condition holds, or change it"
    if "empty batch" in whys:
        return "send more requests at once, so that every rank gets one"
    if all(f.state == "never imported" for f in silent):
        return f"no worker imports `{question.file}`: does this server use that model or module?"
    return "send requests that reach this place, or give `until` a longer `timeout`"
