def select_experts(hidden_states, router_logits, topk_config):
    topk_weights, topk_ids, packed_topk = route(hidden_states, router_logits, topk_config)
    if packed_topk is not None:
        return StandardTopKOutputPacked(topk_weights, topk_ids, router_logits, packed_topk)
    return StandardTopKOutput(topk_weights, topk_ids, router_logits)
