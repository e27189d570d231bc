class EagleVerifyInput:
    def verify(self, batch, logits_output, token_to_kv_pool_allocator, page_size, vocab_mask=None):
        bs = self.retrive_index.shape[0]
        candidates = self.draft_token.reshape(bs, self.draft_token_num)
        predict, accept_index = self.compare(candidates, logits_output)
        for i, req in enumerate(batch.reqs):
            req.check_finished()
        accept_index = accept_index[accept_index != -1]
        verified_id = predict[accept_index]
        return self.output(verified_id, accept_index)
