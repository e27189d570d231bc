"""Stand-in for the CUDA wheel `sgl_kernel`: the CPU entry points of SGLang 0.5.16, in plain torch.

Only what a small dense Llama with an EAGLE draft of one branch calls is here, slow and exact. The
op `convert_weight_packed` is absent on purpose: SGLang takes its presence for AMX and would pack
weights; without it every layer runs in plain torch on any machine.
"""

from . import attention  # noqa: F401  (importing it registers torch.ops.sgl_kernel.*)
from .memory import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
)
from .speculative import (
    build_tree_kernel_efficient_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    verify_tree_greedy_cpu,
)

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "verify_tree_greedy_cpu",
]
__version__ = "0+cpu.standin"


def __getattr__(name):
    """Any other name imports, since SGLang imports many that it never calls; a call says so."""
    if name.startswith("_"):
        raise AttributeError(name)

    def absent(*_args, **_kwargs):
        raise NotImplementedError(f"the sgl_kernel stand-in has no `{name}`")

    return absent
