from sglang import _sgldbg
class Sampler:
    def forward(self, logits_output, sampling_info, return_logprob):
        """Sample one token for each request."""
        logits = logits_output.next_token_logits; _sgldbg.off("logits-nan.1") or _sgldbg.hit("logits-nan.1", locals())
        logits = self._preprocess_logits(logits, sampling_info)
        return logits.argmax(-1)
