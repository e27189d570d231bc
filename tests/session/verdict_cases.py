"""Cases of the verdict as data: what each worker recorded, and what must be said of it.

A worker's records are words: `I` import, `+EXTEND:192` an armed hit that holds with that mode and
width, `-` one that fails, `0` one that was not asked, `!` one that could not be evaluated; a `s` in
front puts it before the arming; `?reason` is a skip (`_` for a blank), `E` a condition that raised,
`X` a spent site.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.model.patch import Anchor, Capture, Edit, Expectation, Patch, Probe
from orchestrator.model.plan import Site
from orchestrator.model.record import Record, Worker
from orchestrator.model.session import Session, Until

FILE = "sglang/srt/models/llama_eagle3.py"
PATCH = "eagle3-draft-input"
PROBE = Probe(
    capture=(Capture("hidden_states", "hidden_states"), Capture("embeds", "embeds")),
    once_per=(
        Capture("forward_batch.forward_mode", "forward_batch.forward_mode"),
        Capture("hidden_states.shape[-1]", "hidden_states.shape[-1]"),
    ),
    expect=(Expectation("fused", "hidden_states.shape[-1] == 3 * embeds.shape[-1]"),),
)
TITLES = {"main": "python -m sglang.launch_server", "detokenizer": "sglang::detokenizer"}
ANSWERS = {"+": True, "-": False, "0": None}


def make_patch(probe: Probe = PROBE) -> Patch:
    """A patch with one probe."""
    anchor = Anchor(FILE, "LlamaModel.forward", "after", "x = 1")
    return Patch(PATCH, "", "sglang", "", (Edit((anchor,), probe, f"{PATCH}.1"),))


def make_sites(patch: Patch) -> tuple[Site, ...]:
    """Where its probes were placed."""
    return tuple(Site(e.site, patch.name, FILE, None, 1, "x = 1") for e in patch.edits)


def make_session(from_workers: str = "every worker", count: int = 1) -> Session:
    """A session that waits for records of the patch."""
    until = Until(PATCH, from_workers, count)
    return Session("s", "Do fused states reach the draft?", "kimi", (PATCH,), until=until)


def make_worker(name: str) -> Worker:
    """`gpu01/TP0` as a worker; the pid follows from the name."""
    host, label = name.split("/")
    return Worker(host, label, 100 + sum(map(ord, name)))


def make_records(name: str, words: str) -> list[Record]:
    """The records that these words stand for."""
    return [make_record(make_worker(name), word, n) for n, word in enumerate(words.split(), 1)]


def make_record(worker: Worker, word: str, seq: int) -> Record:
    """One word's record."""
    phase, word = ("start", word[1:]) if word[0] == "s" else ("armed", word)
    kinds = {"I": "import", "E": "error", "X": "spent", "?": "skip"}
    kind = kinds.get(word[0], "hit")
    title = TITLES.get(worker.label, f"sglang::scheduler_{worker.label.replace(' ', '_')}")
    values, keys, errors, expect = {}, (), {}, {}
    if kind == "hit":
        mode, width = word[1:].split(":")
        values = {"hidden_states": make_tensor(int(width)), "embeds": make_tensor(64)}
        keys = (f"ForwardMode.{mode}", int(width))
        if word[0] == "!":
            errors = {"fused": "AttributeError: no `shape`"}
        else:
            expect = {"fused": ANSWERS[word[0]]}
    if kind == "error":
        errors = {"when": "ZeroDivisionError: division by zero"}
    note = word[1:].replace("_", " ") if kind == "skip" else ""
    return Record(
        session="S",
        kind=kind,
        site=f"{PATCH}.1",
        host=worker.host,
        pid=worker.pid,
        title="python -c spawn" if kind == "import" else title,
        seq=seq,
        phase=phase,
        mono_s=float(seq),
        wall_s=float(seq),
        values=values,
        keys=keys,
        errors=errors,
        expect=expect,
        note=note,
    )


def make_tensor(width: int, **changes: object) -> dict[str, object]:
    """A tensor's value of that width."""
    return {"t": "tensor", "shape": [29, width], "dtype": "float32", "nan": 0, "inf": 0, **changes}


@dataclass(frozen=True)
class Case:
    """Per worker its records; then the states, why they are silent, and the advice."""

    name: str
    seen: dict[str, str]
    state: str
    states: str
    enough: bool
    why: str = ""
    advice: str = ""
    missing: str = ""
    any_worker: bool = False
    known: tuple[str, ...] = ()
    count: int = 1
    shown: tuple[str, ...] = field(default=())


GRAPH = (
    "the code runs inside a CUDA graph, where no Python runs after its capture: add"
    " `--disable-cuda-graph` to `add_args` of `restart`"
)
AFTER_READY = (
    "send requests that reach this place; if they do, it runs inside a CUDA graph: add"
    " `--disable-cuda-graph` to `add_args` of `restart`"
)
TRAFFIC = "send requests that reach this place, or give `until` a longer `timeout`"
ANY = "where not every worker runs this code, say `from: any worker` in `until`"
BOTH = ("gpu01/TP0", "gpu01/TP1")

CASES = [
    Case(
        "the seed's fault",
        dict.fromkeys(BOTH, "I s-EXTEND:64 -EXTEND:64 -DRAFT_EXTEND_V2:64 0DECODE:64"),
        "fails",
        "fails fails",
        True,
        shown=(
            "EXTEND: hidden_states 64, embeds 64",
            "DRAFT_EXTEND_V2: hidden_states 64, embeds 64",
            "DECODE: hidden_states 64, embeds 64 (not asked)",
        ),
    ),
    Case(
        "the seed's fix",
        dict.fromkeys(BOTH, "I s+EXTEND:192 +EXTEND:192 +DRAFT_EXTEND_V2:192 0DECODE:64"),
        "holds",
        "holds holds",
        True,
        shown=(
            "EXTEND: hidden_states 192, embeds 64",
            "DRAFT_EXTEND_V2: hidden_states 192, embeds 64",
            "DECODE: hidden_states 64, embeds 64 (not asked)",
        ),
    ),
    Case(
        "one of each", {BOTH[0]: "+EXTEND:192", BOTH[1]: "-EXTEND:64"}, "mixed", "holds fails", True
    ),
    Case("within one worker", {BOTH[0]: "+EXTEND:192 -EXTEND:64"}, "mixed", "mixed", True),
    Case(
        "a failure outweighs silence",
        {BOTH[0]: "-EXTEND:64", BOTH[1]: "I"},
        "fails",
        "fails never-reached",
        False,
        missing="gpu01/pid 789",
        why="imported, never reached",
    ),
    Case(
        "one worker is silent",
        {BOTH[0]: "I +EXTEND:192", BOTH[1]: "I"},
        "never reached",
        "holds never-reached",
        False,
        missing="gpu01/TP1",
        known=BOTH,
        why="imported, never reached",
        advice=ANY,
    ),
    Case(
        "one worker is silent, any will do",
        {BOTH[0]: "I +EXTEND:192", BOTH[1]: "I"},
        "holds",
        "holds never-reached",
        True,
        missing="gpu01/TP1",
        known=BOTH,
        why="imported, never reached",
        any_worker=True,
    ),
    Case(
        "a scheduler that did not import is asked as well",
        {BOTH[0]: "I +EXTEND:192"},
        "never reached",
        "holds never-imported",
        False,
        known=("gpu01/TP0", "gpu02/TP1"),
        missing="gpu02/TP1",
        why="not imported",
        advice=ANY,
    ),
    Case(
        "nobody imported",
        {},
        "never reached",
        "never-imported never-imported",
        False,
        known=(*BOTH, "gpu01/detokenizer", "gpu01/main"),
        missing="gpu01/TP0 gpu01/TP1",
        why="not imported",
        advice=f"no worker imports `{FILE}`: does this server use that model or module?",
    ),
    Case(
        "nobody is known",
        {},
        "never reached",
        "",
        False,
        advice=f"no worker imports `{FILE}`: does this server use that model or module?",
    ),
    Case(
        "imported only",
        dict.fromkeys(BOTH, "I"),
        "never reached",
        "never-reached never-reached",
        False,
        missing="gpu01/TP0 gpu01/TP1",
        why="imported, never reached",
        advice=TRAFFIC,
        known=BOTH,
    ),
    Case(
        "only before ready",
        {BOTH[0]: "I s-EXTEND:64 sX"},
        "never reached",
        "never-reached",
        False,
        missing="gpu01/TP0",
        why="seen only before ready",
        advice=AFTER_READY,
        shown=("EXTEND: hidden_states 64, embeds 64",),
    ),
    Case(
        "skipped in a graph",
        {BOTH[0]: "I ?graph_warm-up_or_capture"},
        "never reached",
        "never-reached",
        False,
        missing="gpu01/TP0",
        why="reached, but not counted: graph warm-up or capture",
        advice=GRAPH,
    ),
    Case(
        "idle batches only",
        {BOTH[0]: "I ?empty_batch ?empty_batch"},
        "never reached",
        "never-reached",
        False,
        missing="gpu01/TP0",
        why="reached, but not counted: empty batch",
        advice="send more requests at once, so that every rank gets one",
        known=BOTH[:1],
    ),
    Case(
        "the probe's condition never held",
        {BOTH[0]: "I ?`when`_is_false"},
        "never reached",
        "never-reached",
        False,
        missing="gpu01/TP0",
        why="reached, but not counted: `when` is false",
        advice="send requests for which the probe's condition holds, or change it",
    ),
    Case(
        "the expectation was never asked",
        {BOTH[0]: "I 0DECODE:64 0DECODE:192"},
        "never reached",
        "never-reached",
        True,
        why="recorded 2 times, but `when` of the expectation never held",
        advice="send requests for which `when` of the expectation holds, or change it",
        shown=(
            "DECODE: hidden_states 64, embeds 64 (not asked)",
            "DECODE: hidden_states 192, embeds 64 (not asked)",
        ),
    ),
    Case(
        "the expectation raised",
        {BOTH[0]: "I !EXTEND:64 !DECODE:64"},
        "error",
        "error",
        True,
        why="AttributeError: no `shape`",
        advice="correct the expression that could not be evaluated",
    ),
    Case(
        "the condition raised",
        {BOTH[0]: "I E E"},
        "error",
        "error",
        False,
        missing="gpu01/TP0",
        why="when: ZeroDivisionError: division by zero",
        advice="correct the expression that could not be evaluated",
    ),
    Case(
        "a failure outweighs an error",
        {BOTH[0]: "!EXTEND:64 -EXTEND:64"},
        "fails",
        "fails",
        True,
        why="AttributeError: no `shape`",
    ),
    Case(
        "an error spoils what held",
        {BOTH[0]: "!EXTEND:64 +EXTEND:192"},
        "error",
        "error",
        True,
        why="AttributeError: no `shape`",
        advice="correct the expression that could not be evaluated",
    ),
    Case(
        "who only imports is not asked",
        {BOTH[0]: "I +EXTEND:192", "gpu01/main": "I", "gpu01/detokenizer": "I"},
        "holds",
        "holds",
        True,
        known=("gpu01/TP0", "gpu01/main", "gpu01/detokenizer"),
    ),
    Case(
        "no scheduler imports it",
        {"gpu01/main": "I", "gpu01/detokenizer": "I +EXTEND:192"},
        "holds",
        "holds",
        True,
        known=(*BOTH, "gpu01/main", "gpu01/detokenizer"),
    ),
    Case(
        "a rank that is left out is not asked",
        {BOTH[0]: "I +EXTEND:192", BOTH[1]: "I ?rank_1_is_not_asked"},
        "holds",
        "holds",
        True,
        known=BOTH,
    ),
    Case(
        "more than one record each",
        {BOTH[0]: "+EXTEND:192 +DECODE:192", BOTH[1]: "+EXTEND:192"},
        "holds",
        "holds holds",
        False,
        count=2,
    ),
]
