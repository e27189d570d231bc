from sglang import _sgldbg
class EagleVerifyInputV2Mixin:
    def sample(self, batch, logits_output, vocab_mask=None):
        if batch.forward_mode.is_idle():
            predict, num_correct_drafts, accept_index = self.nothing()
            return predict, num_correct_drafts, accept_index

        bs = len(batch.seq_lens)
        candidates = self.draft_token.reshape(bs, self.draft_token_num)
        predict, accept_index, num_correct_drafts = self.compare(candidates, logits_output)
        _sgldbg.off("eagle-verify.1") or _sgldbg.hit("eagle-verify.1", locals()); return predict, num_correct_drafts + 1, accept_index
