"""What a plan says of probes in code that a CUDA graph replays without any Python."""

from __future__ import annotations

import pytest

from orchestrator.model.plan import FilePlan, Plan, Site
from orchestrator.session.steps.graphs import is_captured, note_graphs

DRAFT = ("models/llama_eagle3.py", "LlamaModel.forward")
LAYERS = ("layers/moe/topk.py", "select_experts")
SCHEDULER = ("managers/scheduler.py", "Scheduler.run_batch")
NOTE = (
    "in code that a server may capture in CUDA graphs, where no Python runs after the capture: "
    "add `--disable-cuda-graph` to `add_args` of `restart`"
)


def make_site(file: str, scope: str | None, site: str = "p.1") -> Site:
    """A site in SGLang's runtime."""
    return Site(site, "p", f"sglang/srt/{file}", scope, 7, "x = 1")


@pytest.mark.parametrize(
    ("file", "scope"),
    [
        DRAFT,
        LAYERS,
        ("layers/logits_processor.py", "LogitsProcessor._get_hidden_states_to_store"),
        ("models/deepseek_v2.py", "DeepseekV2MoE.forward_normal"),
        ("speculative/eagle_worker.py", "EAGLEWorker.draft_forward"),
        ("distributed/parallel_state.py", "GroupCoordinator.all_reduce"),
        ("distributed/communication_op.py", "tensor_model_parallel_all_reduce"),
        ("mem_cache/memory_pool.py", "MHATokenToKVPool.set_kv_buffer"),
        ("layers/quantization/fp8.py", "Fp8LinearMethod.apply_weights"),
        ("layers/attention/base.py", "AttentionBackend.init_forward_metadata_in_graph"),
    ],
)
def test_what_a_forward_pass_runs(file: str, scope: str) -> None:
    """Models, layers, the draft's steps, and the all-reduce between them."""
    assert is_captured(make_site(file, scope))


@pytest.mark.parametrize(
    ("file", "scope"),
    [
        SCHEDULER,
        ("models/llama_eagle3.py", None),
        ("models/llama_eagle3.py", "LlamaModel.__init__"),
        ("models/llama_eagle3.py", "LlamaForCausalLMEagle3.load_weights"),
        ("models/llama.py", "LlamaForCausalLM.set_eagle3_layers_to_capture"),
        ("models/llama.py", "LlamaForCausalLM.get_embed_and_head"),
        ("models/deepseek_v2.py", "DeepseekV2ForCausalLM.post_load_weights"),
        ("layers/linear.py", "ColumnParallelLinear.weight_loader"),
        ("layers/sampler.py", "Sampler.forward"),
        ("speculative/eagle_info.py", "EagleVerifyInput.verify"),
        ("distributed/parallel_state.py", "GroupCoordinator.barrier"),
    ],
)
def test_what_runs_outside_of_graphs(file: str, scope: str | None) -> None:
    """What happens once at the start, between two replays, or in other processes."""
    assert not is_captured(make_site(file, scope))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", True),
        ("--disable-cuda-graph-padding", True),
        ("--device cuda", True),
        ("--disable-cuda-graph", False),
        ("--tp 2 --debug-cuda-graph --port 1", False),
        ("--device cpu", False),
        ("--device=cpu --port 1", False),
    ],
)
def test_a_debug_life_without_graphs_needs_no_advice(words: str, told: bool) -> None:
    """Neither one that is told to run eagerly, nor one without a GPU."""
    file = FilePlan("f", "1", "2", b"", "", ("k0",), sites=(make_site(*DRAFT),))
    lives = {"k0": ["python", "-m", "sglang.launch_server", *words.split()]}
    notes = note_graphs(Plan("s", (file,), {"p.1": {}}), lives)
    assert notes == ([f"k0: `p.1` stands {NOTE}"] if told else [])


def test_each_set_of_probes_is_told_once() -> None:
    """Of inserted code nothing is recorded, so it is not meant."""
    draft, routing, inserted = (
        make_site(*DRAFT),
        make_site(*LAYERS, "p.2"),
        make_site(*DRAFT, "p.3"),
    )
    both = FilePlan("a", "1", "2", b"", "", ("k0", "k1"), sites=(draft, inserted))
    more = FilePlan("b", "1", "2", b"", "", ("k0", "k1", "k2"), sites=(routing, routing))
    plan = Plan("s", (both, more), {"p.1": {}, "p.2": {}})
    lives = {"k0": ["x"], "k1": ["x"], "k2": ["x"], "k3": ["x"]}
    assert note_graphs(plan, lives) == [
        f"k[0-1]: `p.1`, `p.2` stand {NOTE}",
        f"k2: `p.2` stands {NOTE}",
    ]
