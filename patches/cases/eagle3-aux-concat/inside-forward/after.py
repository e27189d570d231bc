from sglang import _sgldbg; import torch


class LogitsProcessor:
    def forward(self, input_ids, hidden_states, lm_head, logits_metadata, aux_hidden_states=None):
        """Compute logits, and keep what a draft needs."""; _sgldbg.off("eagle3-aux-concat.1") or _sgldbg.hit("eagle3-aux-concat.1", locals())
        pruned_states = hidden_states[logits_metadata.last_index]
        hidden_states_to_store = None
        if logits_metadata.capture_hidden_mode.need_capture():
            if aux_hidden_states is not None:
                aux_hidden_states = torch.cat(aux_hidden_states, dim=-1)
                hidden_states_to_store = aux_hidden_states
            else:
                hidden_states_to_store = hidden_states
        _sgldbg.off("eagle3-aux-concat.2") or _sgldbg.hit("eagle3-aux-concat.2", locals()); del hidden_states
        return self.output(pruned_states, hidden_states_to_store)
