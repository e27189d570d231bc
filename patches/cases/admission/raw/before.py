class Scheduler:
    def get_new_batch_prefill(self):
        return self._get_new_batch_prefill_raw()

    def _get_new_batch_prefill_raw(self):
        adder = self.make_adder()
        for req in self.waiting_queue:
            req.init_next_round_input(self.tree_cache)
            res = adder.add_one_req(
                req,
                has_chunked_req=(self.chunked_req is not None),
                truncation_align_size=self.truncation_align_size,
            )
            if res != AddReqResult.CONTINUE:
                break
        return adder.can_run_list
