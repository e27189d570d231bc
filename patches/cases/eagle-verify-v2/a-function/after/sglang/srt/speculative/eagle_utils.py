from sglang import _sgldbg
def eagle_sample(verify_input, batch, logits_output, grammar_mask=None):
    if batch.forward_mode.is_idle():
        predict, num_correct_drafts, accept_index = verify_input.nothing()
        return predict, num_correct_drafts, accept_index

    bs = len(batch.seq_lens)
    candidates = verify_input.draft_token.reshape(bs, verify_input.draft_token_num)
    predict, accept_index, num_correct_drafts = verify_input.compare(candidates, logits_output)
    accept_lens = num_correct_drafts + 1
    _sgldbg.off("eagle-verify-v2.1") or _sgldbg.hit("eagle-verify-v2.1", locals()); return predict, accept_lens, accept_index
