class PrefillBootstrapQueue:
    def pop_bootstrapped(self):
        if self.pp:
            polls = poll_and_all_reduce_prefill_pp(self.queue)
        else:
            polls = poll_and_all_reduce(self.queue)

        for i, (req, poll) in enumerate(zip(self.queue, polls)):
            if poll == KVPoll.Failed:
                self.drop(i)
        return self.queue
