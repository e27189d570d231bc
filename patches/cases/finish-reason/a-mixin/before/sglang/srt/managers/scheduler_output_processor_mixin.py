class SchedulerOutputProcessorMixin:
    def stream_output_generation(self, reqs):
        rids, finished_reasons = [], []
        for req in reqs:
            rids.append(req.rid)
            finished_reasons.append(
                req.finished_reason.to_json() if req.finished_reason else None
            )
        self.send(rids, finished_reasons)

    def stream_output_embedding(self, reqs):
        finished_reasons = []
        for req in reqs:
            finished_reasons.append(req.finished_reason.to_json())
