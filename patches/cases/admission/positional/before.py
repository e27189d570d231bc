class Scheduler:
    def get_new_batch_prefill(self):
        adder = self.make_adder()
        for req in self.waiting_queue:
            req.init_next_round_input(self.tree_cache)
            res = adder.add_one_req(req, self.chunked_req, self.enable_hierarchical_cache)
            if res != AddReqResult.CONTINUE:
                break
        return adder.can_run_list
