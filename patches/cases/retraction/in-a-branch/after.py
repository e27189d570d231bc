from sglang import _sgldbg
class ScheduleBatch:
    def retract_decode(self, server_args):
        retracted_reqs = []
        for idx in self.order():
            req = self.reqs[idx]
            if req.retractable:
                retracted_reqs.append(req); _sgldbg.off("retraction.1") or _sgldbg.hit("retraction.1", locals())
            self.release(idx)
        return retracted_reqs
