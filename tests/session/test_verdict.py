"""When enough was seen, and the verdict, for every state that workers can be in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.patch import Capture, Insert, Probe
from orchestrator.model.record import Record, Verdict, Worker
from orchestrator.session.answer.evidence import value_text
from orchestrator.session.answer.verdict import enough, judge
from tests.session.verdict_cases import (
    CASES,
    PATCH,
    PROBE,
    Case,
    make_patch,
    make_record,
    make_records,
    make_session,
    make_sites,
    make_tensor,
    make_worker,
)


def judge_case(case: Case, *, cut_short: bool = False) -> tuple[bool, Verdict]:
    """Whether it was enough, and what is said of it."""
    session = make_session("any worker" if case.any_worker else "every worker", case.count)
    records = [r for name, words in case.seen.items() for r in make_records(name, words)]
    workers = [make_worker(name) for name in case.known]
    patch = make_patch()
    met = enough(session, records, workers) and not cut_short
    return met, judge(session, [patch], make_sites(patch), records, workers, 0, met, cut_short)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case(case: Case) -> None:
    """The whole of what is said: states, reasons, values, advice, and who is missing."""
    met, verdict = judge_case(case)
    (finding,) = verdict.findings
    workers = finding.workers
    assert met is case.enough
    assert finding.state == case.state
    assert [w.state.replace(" ", "-") for w in workers] == case.states.split()
    assert "; ".join(dict.fromkeys(w.why for w in workers if w.why)) == case.why
    assert finding.advice == case.advice
    assert " ".join(f"{w.host}/{w.label}" for w in verdict.missing) == case.missing
    if case.shown:
        assert {w.shown for w in workers} == {case.shown}
    assert verdict.holds is (case.enough and case.state == "holds")


def test_counts_are_of_armed_hits_only() -> None:
    """What warm-up and health polls showed before is seen, not counted."""
    case = Case(
        "",
        {"gpu01/TP0": "s+EXTEND:192 s-EXTEND:64 +EXTEND:192 +DECODE:64 0EXTEND:64"},
        "",
        "",
        True,
    )
    _, verdict = judge_case(case)
    (worker,) = verdict.findings[0].workers
    assert (worker.held, worker.failed, verdict.records) == (2, 0, 3)


def test_without_until_it_is_always_enough() -> None:
    """Then the exercise alone decides how long a session observes."""
    session = replace(make_session(), until=None)
    assert enough(session, [], [])
    assert judge(session, [make_patch()], make_sites(make_patch()), [], [], 0, True).findings


def test_a_probe_that_expects_nothing_must_at_least_record() -> None:
    """Its silence is told as well as that of an expectation."""
    patch = make_patch(replace(PROBE, expect=()))
    records = make_records("gpu01/TP0", "I 0EXTEND:64")
    workers = [make_worker("gpu01/TP0")]
    session = make_session()
    spoken = judge(session, [patch], make_sites(patch), records, workers, 0, True)
    silent = judge(session, [patch], make_sites(patch), records[:1], workers, 0, False)
    assert [(f.expectation, f.state) for f in spoken.findings] == [("recorded", "holds")]
    assert spoken.findings[0].workers[0].shown == ("EXTEND: hidden_states 64, embeds 64",)
    assert [(f.expectation, f.state) for f in silent.findings] == [("recorded", "never reached")]


def test_what_was_not_placed_is_not_judged() -> None:
    """Inserted code observes nothing, and an edit that is not in the plan has no records."""
    patch = make_patch()
    inserted = replace(patch.edits[0], action=Insert("pass"))
    session = make_session()
    assert judge(session, [patch], [], [], [], 0, True).findings == ()
    odd = replace(patch, edits=(inserted,))
    assert judge(session, [odd], make_sites(odd), [], [], 3, True).damaged == 3


def test_two_sites_and_two_patches_are_judged_apart() -> None:
    """A hit of one is no hit of the other."""
    patch = make_patch()
    second = replace(patch.edits[0], site=f"{PATCH}.2")
    patch = replace(patch, edits=(patch.edits[0], second))
    records = make_records("gpu01/TP0", "+EXTEND:192")
    other = replace(records[0], site="other.1", expect={"fused": False})
    verdict = judge(make_session(), [patch], make_sites(patch), [*records, other], [], 0, True)
    assert [f.state for f in verdict.findings] == ["holds", "never reached"]
    assert not enough(make_session(), [other], [])


def test_a_worker_keeps_its_best_label() -> None:
    """The import is recorded before the process has its title."""
    worker = Worker("gpu01", "pid 7", 7)
    scheduler = make_record(Worker("gpu01", "TP3", 7), "+EXTEND:192", 2)
    records = [make_record(worker, "I", 1), scheduler]
    verdict = judge(
        make_session(), [make_patch()], make_sites(make_patch()), records, [worker], 0, True
    )
    assert [w.worker.label for w in verdict.findings[0].workers] == ["TP3"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "x 7"),
        ("nan", "x nan"),
        (None, "x None"),
        ({"t": "enum", "text": "ForwardMode.EXTEND"}, "x EXTEND"),
        ({"t": "tuple", "text": "(29, 192)"}, "x (29, 192)"),
        (make_tensor(64, nan=3, inf=1), "x 64 (3 NaN, 1 Inf)"),
        ({"t": "tensor", "shape": [0, 64], "dtype": "float32", "why": "empty"}, "x 64 (empty)"),
        ({"t": "tensor", "shape": [], "dtype": "float32", "head": [2.5]}, "x 2.5"),
        ({"t": "tensor", "shape": [2], "dtype": "int64", "head": [5, 7], "n": 2}, "x [5, 7]"),
        (
            {"t": "tensor", "shape": [9], "dtype": "int64", "head": [5, 7, 1, 2, 3], "n": 9},
            "x [5, 7, 1, 2, 3, ...]",
        ),
    ],
)
def test_values_in_short(value: object, text: str) -> None:
    """The last width of a tensor, the numbers of a short one, and what is alarming."""
    assert value_text("x", value) == text


def test_rows_are_bounded_and_safe_to_show() -> None:
    """Thousands of distinct values, or escape sequences in them, do not reach the terminal."""
    probe = Probe(capture=(Capture("x", "x"),), expect=PROBE.expect)
    patch = make_patch(probe)
    base = make_record(make_worker("gpu01/TP0"), "+EXTEND:192", 1)
    records: list[Record] = [
        replace(base, seq=n, mono_s=n, keys=(), values={"x": f"\x1b[31m{n}\n\x07"})
        for n in range(500)
    ]
    verdict = judge(make_session(), [patch], make_sites(patch), records, [], 0, True)
    shown = verdict.findings[0].workers[0].shown
    assert shown[:2] == ("x 0", "x 1")
    assert shown[12:] == ("and 488 more",)
