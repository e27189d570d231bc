from sglang import _sgldbg
class EagleVerifyInputV2Mixin:
    def sample(self, batch, logits_output, vocab_mask=None):
        if batch.forward_mode.is_idle():
            predict, accept_length, accept_index = self.nothing()
            return predict, accept_length, accept_index

        bs = len(batch.seq_lens)
        candidates = self.draft_token.reshape(bs, self.draft_token_num)
        predict, accept_index, accept_length = self.compare(candidates, logits_output)
        _sgldbg.off("eagle-verify-v2.1") or _sgldbg.hit("eagle-verify-v2.1", locals()); return predict, accept_length, accept_index
