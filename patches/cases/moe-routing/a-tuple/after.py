from sglang import _sgldbg
def select_experts(hidden_states, router_logits, top_k):
    topk_weights, topk_ids = route(hidden_states, router_logits, top_k)
    _sgldbg.off("moe-routing.1") or _sgldbg.hit("moe-routing.1", locals()); return topk_weights, topk_ids
