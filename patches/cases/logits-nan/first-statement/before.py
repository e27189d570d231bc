class Sampler:
    def forward(self, logits_output, sampling_info, return_logprob):
        """Sample one token for each request."""
        logits = logits_output.next_token_logits
        logits = self._preprocess_logits(logits, sampling_info)
        return logits.argmax(-1)
