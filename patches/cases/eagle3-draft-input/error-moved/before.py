class LlamaModel:
    def forward(self, input_ids, positions, forward_batch):
        embeds = self.embed_tokens(input_ids)
        hidden_states = self.read_states(forward_batch)
        return self.layers(positions, embeds, hidden_states)

    def read_states(self, forward_batch):
        hidden_states = forward_batch.spec_info.hidden_states
        return hidden_states
