from sglang import _sgldbg; import torch


class LlamaModel:
    def forward(self, input_ids, positions, forward_batch):
        embeds = self.embed_tokens(input_ids)
        hidden_states = forward_batch.spec_info.hidden_states
        if hidden_states.shape[-1] != embeds.shape[-1]:
            if self.fc_norm is not None:
                chunks = hidden_states.chunk(3, dim=-1)
                hidden_states = torch.cat([n(c) for n, c in zip(self.fc_norm, chunks)], dim=-1)
            hidden_states = self.fc(hidden_states); _sgldbg.off("eagle3-fc-applied.1") or _sgldbg.hit("eagle3-fc-applied.1", locals())
        return hidden_states, embeds
