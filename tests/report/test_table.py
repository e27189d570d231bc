"""The verdict as a user reads it: whole texts."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from orchestrator.report.table import verdict_json, verdict_lines, verdict_table
from tests.session.test_verdict import judge_case
from tests.session.verdict_cases import CASES, Case

TEXTS = {
    "the seed's fault": """\
Do fused states reach the draft?

eagle3-draft-input: fused fails (hidden_states.shape[-1] == 3 * embeds.shape[-1])
  gpu01 TP0, TP1  fails 2x  EXTEND: hidden_states 64, embeds 64
                            DRAFT_EXTEND_V2: hidden_states 64, embeds 64
                            DECODE: hidden_states 64, embeds 64 (not asked)

6 records count; verdict: fails""",
    "the seed's fix": """\
Do fused states reach the draft?

eagle3-draft-input: fused holds (hidden_states.shape[-1] == 3 * embeds.shape[-1])
  gpu01 TP0, TP1  holds 2x  EXTEND: hidden_states 192, embeds 64
                            DRAFT_EXTEND_V2: hidden_states 192, embeds 64
                            DECODE: hidden_states 64, embeds 64 (not asked)

6 records count; verdict: holds""",
    "one of each": """\
Do fused states reach the draft?

eagle3-draft-input: fused is mixed (hidden_states.shape[-1] == 3 * embeds.shape[-1])
  gpu01 TP0  holds 1x  EXTEND: hidden_states 192, embeds 64
  gpu01 TP1  fails 1x  EXTEND: hidden_states 64, embeds 64

2 records count; verdict: mixed""",
    "a scheduler that did not import is asked as well": """\
Do fused states reach the draft?

eagle3-draft-input: fused never reached (hidden_states.shape[-1] == 3 * embeds.shape[-1])
  gpu01 TP0  holds 1x        EXTEND: hidden_states 192, embeds 64
  gpu02 TP1  never imported  not imported
  hint: where not every worker runs this code, say `from: any worker` in `until`

without a record that counts: gpu02 TP1
`until` was not met in time; this is what was collected
1 record counts; verdict: never reached""",
    "the condition raised": """\
Do fused states reach the draft?

eagle3-draft-input: fused could not be evaluated (hidden_states.shape[-1] == 3 * embeds.shape[-1])
  gpu01 TP0  error  when: ZeroDivisionError: division by zero
  hint: correct the expression that could not be evaluated

without a record that counts: gpu01 TP0
`until` was not met in time; this is what was collected
0 records count; verdict: error""",
    "more than one record each": """\
Do fused states reach the draft?

eagle3-draft-input: fused holds (hidden_states.shape[-1] == 3 * embeds.shape[-1])
  gpu01 TP0  holds 2x  EXTEND: hidden_states 192, embeds 64
                       DECODE: hidden_states 192, embeds 64
  gpu01 TP1  holds 1x  EXTEND: hidden_states 192, embeds 64

fewer than the 2 records that `until` asks for: gpu01 TP1 (1)
`until` was not met in time; this is what was collected
3 records count; verdict: not enough was seen""",
    "nobody is known": """\
Do fused states reach the draft?

eagle3-draft-input: fused never reached (hidden_states.shape[-1] == 3 * embeds.shape[-1])
  hint: no worker imports `sglang/srt/models/llama_eagle3.py`: does this server use that model or\
 module?

`until` was not met in time; this is what was collected
0 records count; verdict: never reached""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_a_verdict(name: str) -> None:
    """Question, a block per expectation with equal workers folded, what is missing, the word."""
    (case,) = [case for case in CASES if case.name == name]
    assert "\n".join(verdict_lines(judge_case(case)[1])) == TEXTS[name]


EARLY = {
    "one of each": """\
eagle3-draft-input: fused is mixed (hidden_states.shape[-1] == 3 * embeds.shape[-1])
  gpu01 TP0  holds 1x  EXTEND: hidden_states 192, embeds 64
  gpu01 TP1  fails 1x  EXTEND: hidden_states 64, embeds 64

the session ended early; this is what was collected until then
2 records count; verdict: mixed""",
    "skipped in a graph": """\
eagle3-draft-input: fused never reached (hidden_states.shape[-1] == 3 * embeds.shape[-1])
  gpu01 TP0  never reached  reached, but not counted: graph warm-up or capture

without a record that counts: gpu01 TP0
the session ended early; this is what was collected until then
0 records count; verdict: not enough was seen""",
    "the condition raised": """\
eagle3-draft-input: fused could not be evaluated (hidden_states.shape[-1] == 3 * embeds.shape[-1])
  gpu01 TP0  error  when: ZeroDivisionError: division by zero
  hint: correct the expression that could not be evaluated

without a record that counts: gpu01 TP0
the session ended early; this is what was collected until then
0 records count; verdict: error""",
}


@pytest.mark.parametrize("name", EARLY)
def test_a_session_that_ended_early_draws_no_conclusion_from_silence(name: str) -> None:
    """No advice on what was never reached, and no word of a time that did not run out."""
    (case,) = [case for case in CASES if case.name == name]
    verdict = judge_case(case, cut_short=True)[1]
    assert not verdict.holds
    assert "\n".join(verdict_lines(verdict)) == f"{verdict.question}\n\n{EARLY[name]}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_table_says_what_the_lines_say(case: Case) -> None:
    """Meaning never depends on colour, and nothing is cut on a wide terminal."""
    verdict = judge_case(case)[1]
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(verdict_table(verdict))
    words = " ".join(verdict_lines(verdict)).split()
    assert sorted(out.getvalue().split()) == sorted(words)


def test_markup_in_a_value_is_only_text() -> None:
    """Square brackets in a host's text are not styles."""
    case = Case("", {"gpu01/TP0": "I ?[red]reason[/red]"}, "", "", False)
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(verdict_table(judge_case(case)[1]))
    assert "reached, but not counted: [red]reason[/red]" in out.getvalue()


def test_the_json_of_a_verdict() -> None:
    """All facts as plain data."""
    (case,) = [case for case in CASES if case.name == "one of each"]
    facts = json.loads(json.dumps(verdict_json(judge_case(case)[1])))
    assert facts["holds"] is False
    assert facts["until_met"] is True
    assert [(f["expectation"], f["state"]) for f in facts["findings"]] == [("fused", "mixed")]
    assert facts["findings"][0]["workers"][1] == {
        "worker": {"host": "gpu01", "label": "TP1", "pid": case_pid("gpu01/TP1")},
        "state": "fails",
        "held": 0,
        "failed": 1,
        "shown": ["EXTEND: hidden_states 64, embeds 64"],
        "why": "",
    }


def case_pid(name: str) -> int:
    """The pid that the cases give a worker of this name."""
    return 100 + sum(map(ord, name))
