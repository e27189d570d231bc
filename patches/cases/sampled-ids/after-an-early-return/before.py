class Sampler:
    def forward(self, logits_output, sampling_info, return_logprob):
        if logits_output.next_token_logits is None:
            return self.nothing()
        batch_next_token_ids = logits_output.next_token_logits.argmax(-1)
        if sampling_info.is_plain:
            return batch_next_token_ids
        self.attach(logits_output, batch_next_token_ids)
        return batch_next_token_ids
