class _GenerationStreamAccumulator:
    def accept(self, *, req):
        self.rids.append(req.rid)
        self.finished_reasons.append(
            req.finished_reason.to_json() if req.finished_reason else None
        )
        self.decoded_texts.append(req.decoded_text)
