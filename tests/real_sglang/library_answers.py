"""What each patch of the library must say of the small server: the values, worker by worker.

The models are known (four layers of width 64, a vocabulary of 320), and so are the prompt and the
answer to it; the rest follows from how speculative decoding works. A value that would also be right
with a fault is no proof, so where it can be, one patch is checked against another or against the
answer that the user got.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real_sglang.byhand import PROMPT_TOKENS

WIDTH, LAYERS, VOCABULARY, STEPS = 64, 4, 320, 3
DRAFTED = STEPS + 1
ASKED_TOKENS = 16
POOL_SLOTS = 2048
REQUEST = "library"

Values = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """What one worker recorded at the sites of one patch, by phase, and what the user got."""

    rank: int
    start: Sequence[Mapping[str, Any]]
    armed: Sequence[Mapping[str, Any]]
    answer: Sequence[int]
    stderr_dir: Path
    server_stderr: str

    def values(self, site: int = 1, *, phase: str = "armed") -> list[Values]:
        """The captured values of one site, in order, with texts and enumerations as plain text."""
        records = self.armed if phase == "armed" else self.start
        return [
            {name: _plain(value) for name, value in record["values"].items()}
            for record in records
            if str(record["site"]).endswith(f".{site}")
        ]


def _plain(value: Any) -> Any:
    """A tensor stays a mapping; of anything else the text."""
    if isinstance(value, dict) and "shape" not in value:
        return str(value["text"]).rpartition(".")[2] if value.get("t") == "enum" else value["text"]
    return value


def _shape(value: Mapping[str, Any]) -> list[int]:
    """Of a float tensor that holds sound, not constant values."""
    assert (value["nan"], value["inf"]) == (0, 0)
    assert value["std"] > 0 or value["n"] == 1
    return list(value["shape"])


def _head(value: Mapping[str, Any]) -> list[int]:
    return list(value["head"])


def _admission(said: Said) -> None:
    (one,) = said.values()
    assert (one["req.rid"], one["res"]) == (REQUEST, "CONTINUE")
    assert (one["prompt"], one["admitted"], one["running"]) == (PROMPT_TOKENS, 1, 0)
    assert one["self.running_batch.batch_is_full"] is False
    assert 0 < one["adder.rem_total_tokens"] < POOL_SLOTS - PROMPT_TOKENS


def _all_reduce_order(said: Said) -> None:
    found = said.values()
    assert {(v["self.unique_name"], v["self.world_size"]) for v in found} == {("tp:0", 2)}
    assert {v["self.rank_in_group"] for v in found} == {said.rank}
    # The embeddings and twice each layer, of the target, then of its draft: prefill; draft steps of
    # one token; verification and the draft's extension over all that was drafted.
    prefill = [f"[{PROMPT_TOKENS}, {WIDTH}]"] * (1 + 2 * LAYERS + 3)
    draft = [f"[1, {WIDTH}]"] * (3 * (STEPS - 1))
    verify = [f"[{DRAFTED}, {WIDTH}]"] * (1 + 2 * LAYERS + 3)
    order = [*prefill, *draft, *verify, *draft, *verify]
    assert [v["shape"] for v in found][: len(order)] == order


def _batch_composition(said: Said) -> None:
    prefill, decode = said.values()
    assert (prefill["batch.forward_mode"], decode["batch.forward_mode"]) == ("EXTEND", "DECODE")
    assert decode["self.forward_ct"] == prefill["self.forward_ct"] + 1
    for one in (prefill, decode):
        assert (one["size"], one["rids"], one["waiting"]) == (1, f"['{REQUEST}']", 0)


def _draft_step(said: Said) -> None:
    found = said.values()
    assert [v["i"] for v in found] == list(range(STEPS - 1))
    for one in found:
        assert _shape(one["hidden_states"]) == [1, WIDTH]
        assert 0 < one["topk_p"]["min"] <= one["topk_p"]["max"] <= 1.001
        assert _head(one["topk_index"]) == _head(one["input_ids"])
    spreads = [v["hidden_states"]["std"] for v in found]
    assert len(set(spreads)) == len(spreads), "the draft is not fed with stale states"


def _verify(said: Said) -> None:
    (one,) = said.values()
    # Random weights: the target agrees with nothing, so each round gains its own token alone.
    assert (one["bs"], _head(one["advanced"])) == (1, [1])
    assert one["candidates"]["shape"] == [1, DRAFTED]
    first, second = said.answer[:2]
    assert _head(one["candidates"])[0] == first
    assert _head(one["target"])[0] == _head(one["predict"])[0] == second
    assert _head(one["candidates"])[1] != second
    assert _head(one["accept_index"]) == [0, -1, -1, -1]


def _aux_concat(said: Said) -> None:
    arrived = [(v["logits_metadata.forward_mode"], v["aux_shapes"]) for v in said.values()]
    prompt, one, drafted = ([n, WIDTH] for n in (PROMPT_TOKENS, 1, DRAFTED))
    # Of each mode the target first, with three layers, then the draft with its own; a draft step
    # has no target.
    assert arrived == [
        ("EXTEND", str([prompt] * 3)),
        ("EXTEND", str([prompt])),
        ("DECODE", str([one])),
        ("TARGET_VERIFY", str([drafted] * 3)),
        ("DRAFT_EXTEND_V2", str([drafted])),
    ]
    stored = [
        (v["logits_metadata.forward_mode"], _shape(v["hidden_states_to_store"]))
        for v in said.values(2)
    ]
    assert stored == [
        ("EXTEND", [PROMPT_TOKENS, 3 * WIDTH]),
        ("EXTEND", [1, WIDTH]),
        ("DECODE", [1, WIDTH]),
        ("TARGET_VERIFY", [DRAFTED, 3 * WIDTH]),
        ("DRAFT_EXTEND_V2", [DRAFTED, WIDTH]),
    ]


def _aux_layer_ids(said: Said) -> None:
    target, draft = said.values(phase="start")
    assert target == {
        # One more each than the draft's configuration names: captured before that layer.
        "layers": "[1, 2, 3]",
        "model": "LlamaForCausalLM",
        "of": LAYERS,
        "draft": False,
    }
    assert (draft["layers"], draft["model"]) == (None, "LlamaForCausalLMEagle3")
    assert draft["draft"] is True


def _d2t_map(said: Said) -> None:
    (one,) = said.values(phase="start")
    ids, stored = one["self.hot_token_id"], one["loaded_weight"]
    assert (ids["shape"], ids["min"], ids["max"]) == ([VOCABULARY], 0, VOCABULARY - 1)
    # This draft's vocabulary is the target's own: all differences are zero.
    assert (stored["shape"], stored["zero"]) == ([VOCABULARY], 1.0)
    assert (one["name"], one["draft_vocab"]) == ("d2t", VOCABULARY)


def _draft_input(said: Said) -> None:
    found = {v["forward_batch.forward_mode"]: v for v in said.values()}
    widths = {mode: _shape(v["hidden_states"]) for mode, v in found.items()}
    assert widths == {
        "EXTEND": [PROMPT_TOKENS, 3 * WIDTH],
        "DECODE": [1, WIDTH],
        "DRAFT_EXTEND_V2": [DRAFTED, 3 * WIDTH],
    }
    for one in found.values():
        assert _shape(one["embeds"])[-1] == WIDTH
        assert _shape(one["self.fc.weight"]) == [WIDTH, 3 * WIDTH]


def _fc_applied(said: Said) -> None:
    widths = {v["forward_batch.forward_mode"]: _shape(v["hidden_states"]) for v in said.values()}
    # In decode steps the draft is fed its own states, and `fc` is passed over.
    assert widths == {"EXTEND": [PROMPT_TOKENS, WIDTH], "DRAFT_EXTEND_V2": [DRAFTED, WIDTH]}


def _weights_dropped(said: Said) -> None:
    kept, dropped = said.values(phase="start")
    assert kept["found"] is True
    name = "layers.0.renamed_proj.weight"
    assert dropped == {
        "name": name,
        "param_name": f"model.{name}",
        "shape": str([WIDTH, WIDTH]),
        "found": False,
    }
    assert [r["expect"] for r in said.start] == [{"found": True}, {"found": False}]


def _weights_never_written(said: Said) -> None:
    named = {v["model"]: v for v in said.values(2, phase="start")}
    assert named["LlamaForCausalLM"]["unwritten"] == 0
    # The draft shares the target's embeddings, which it gets after loading.
    draft = named["LlamaForCausalLMEagle3"]
    assert (draft["unwritten"], draft["first"]) == (1, "['model.embed_tokens.weight']")


def _finish_reason(said: Said) -> None:
    (one,) = said.values()
    assert one == {
        "req.rid": REQUEST,
        "reason": str({"type": "length", "length": ASKED_TOKENS}),
        "answered": ASKED_TOKENS,
        "asked": ASKED_TOKENS,
        "prompt": PROMPT_TOKENS,
    }


def _kv_allocation(said: Said) -> None:
    prompt, *_ = found = said.values()
    assert prompt["need_size"] == PROMPT_TOKENS
    # Room for what is drafted this round and the next.
    assert found[1]["need_size"] == 2 * DRAFTED
    assert found[1]["available"] == prompt["available"] - PROMPT_TOKENS
    assert {v["self.size"] for v in found} == {POOL_SLOTS}


def _logits(said: Said) -> None:
    (one,) = said.values()
    assert _shape(one["logits"]) == [1, VOCABULARY]
    assert one["rows"]["shape"] == [0]
    assert _head(one["likely"]) == [said.answer[0]]


def _prefix_hit(said: Said) -> None:
    (one,) = said.values()
    assert (one["prefix_len"], one["extend_input_len"]) == (0, PROMPT_TOKENS)
    assert one["max_new_tokens"] == ASKED_TOKENS


def _sampled_ids(said: Said) -> None:
    (one,) = said.values()
    assert one["ids"]["shape"] == [1]
    # The first token; those behind it come out of verification.
    assert _head(one["ids"]) == _head(one["batch_next_token_ids"]) == [said.answer[0]]
    assert one["sampling_info.is_all_greedy"] is True


def _stderr_split(said: Said) -> None:
    (one,) = said.values(2, phase="start")
    path = Path(one["stderr"])
    assert (one["tp_rank"], one["dp_rank"]) == (said.rank, None)
    assert path.parent == said.stderr_dir
    assert path.name.endswith(f"-DP0-TP{said.rank}-GPU{one['gpu_id']}.stderr")
    text = path.read_text()
    assert f" TP{said.rank}] " in text
    assert f" TP{1 - said.rank}] " not in text
    assert f"stderr of TP{said.rank} goes on in {path}\n" in said.server_stderr
    assert f" TP{said.rank}] " not in said.server_stderr


AT_START: dict[str, Callable[[Said], None]] = {
    "eagle3-aux-layer-ids": _aux_layer_ids,
    "eagle3-d2t-map": _d2t_map,
    "eagle3-weights-dropped": _weights_dropped,
    "weights-never-written": _weights_never_written,
    "worker-stderr-split": _stderr_split,
}
ON_REQUEST: dict[str, Callable[[Said], None]] = {
    "admission": _admission,
    "all-reduce-order": _all_reduce_order,
    "batch-composition": _batch_composition,
    "eagle-draft-step": _draft_step,
    "eagle-verify": _verify,
    "eagle3-aux-concat": _aux_concat,
    "eagle3-draft-input": _draft_input,
    "eagle3-fc-applied": _fc_applied,
    "finish-reason": _finish_reason,
    "kv-allocation": _kv_allocation,
    "logits-nan": _logits,
    "prefix-hit": _prefix_hit,
    "sampled-ids": _sampled_ids,
}
