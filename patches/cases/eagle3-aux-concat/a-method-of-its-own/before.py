class LogitsProcessor:
    def forward(self, input_ids, hidden_states, lm_head, logits_metadata, aux_hidden_states=None):
        logits_metadata = self.read(logits_metadata)
        states = self._get_pruned_states(hidden_states, aux_hidden_states, logits_metadata)
        return self._get_hidden_states_to_store(hidden_states, *states, logits_metadata)

    def _get_hidden_states_to_store(
        self, hidden_states, pruned_states, aux_pruned_states, logits_metadata
    ):
        hidden_states_to_store = None
        if logits_metadata.capture_hidden_mode.need_capture():
            hidden_states_to_store = self.pack(aux_pruned_states)
        return hidden_states_to_store
