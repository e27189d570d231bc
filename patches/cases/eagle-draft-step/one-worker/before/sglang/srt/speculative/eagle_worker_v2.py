class EagleDraftWorker:
    def draft_forward(self, forward_batch):
        spec_info = forward_batch.spec_info
        topk_p, topk_index, hidden_states = (
            spec_info.topk_p,
            spec_info.topk_index,
            spec_info.hidden_states,
        )
        scores = None
        for i in range(self.speculative_num_steps):
            input_ids, hidden_states, scores, tree_info = self.select(
                i, topk_p, topk_index, hidden_states, scores, self.topk
            )
            if i == self.speculative_num_steps - 1:
                break
            forward_batch.input_ids = input_ids
            spec_info.hidden_states = hidden_states
            canary_index_ctx = self.canary(i)
            logits_output = self.draft_runner.forward(forward_batch).logits_output
            topk_p, topk_index = self.propose(logits_output)
            hidden_states = logits_output.hidden_states
        return tree_info
