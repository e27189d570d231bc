"""A draft head that reads the target's hidden states."""

import torch


class LlamaModel:
    def forward(self, input_ids, positions, forward_batch, input_embeds=None):
        embeds = self.embed_tokens(input_ids) if input_embeds is None else input_embeds

        if self.is_mrope_enabled:
            positions = forward_batch.mrope_positions

        hidden_states = forward_batch.spec_info.hidden_states
        if hidden_states.shape[-1] != embeds.shape[-1]:
            hidden_states = self.fc(hidden_states)
        return self.layers(positions, embeds, hidden_states)


class LlamaForCausalLMEagle3:
    def forward(self, input_ids, forward_batch):
        hidden_states = forward_batch.spec_info.hidden_states
        return hidden_states
