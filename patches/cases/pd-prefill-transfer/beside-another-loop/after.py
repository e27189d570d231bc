from sglang import _sgldbg
class SchedulerDisaggregationPrefillMixin:
    def process_disagg_prefill_inflight_queue(self, rids_to_check=None):
        polls = poll_and_all_reduce(self.disagg_prefill_inflight_queue)
        undone_reqs = []; _sgldbg.off("pd-prefill-transfer.1") or _sgldbg.hit("pd-prefill-transfer.1", locals())
        for req, poll in zip(self.disagg_prefill_inflight_queue, polls):
            if poll == KVPoll.Success:
                self.finish(req)
            else:
                undone_reqs.append(req)
        return undone_reqs

    def get_transferred_rids(self):
        polls = poll_and_all_reduce(self.disagg_prefill_inflight_queue)
        for req, poll in zip(self.disagg_prefill_inflight_queue, polls):
            self.note(req, poll)
