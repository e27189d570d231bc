def select_experts(hidden_states, router_logits, top_k):
    topk_weights, topk_ids = route(hidden_states, router_logits, top_k)
    return topk_weights, topk_ids
