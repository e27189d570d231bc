from sglang import _sgldbg
class DecodeTransferQueue:
    def pop_transferred(self, rids_to_check=None):
        if self.staging:
            polls = self._poll_with_staging()
        else:
            polls = self._poll_with_metadata_gate()

        _sgldbg.off("pd-decode-transfer.1") or _sgldbg.hit("pd-decode-transfer.1", locals())
        for i, (decode_req, poll) in enumerate(zip(self.queue, polls)):
            if poll == KVPoll.Failed:
                self.fail(i, decode_req)
