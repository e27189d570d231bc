class ScheduleBatch:
    def retract_decode(self, server_args):
        retracted_reqs = []
        for idx in self.order():
            req = self.reqs[idx]
            if req.retractable:
                retracted_reqs.append(req)
            self.release(idx)
        return retracted_reqs
