from sglang import _sgldbg
class _GenerationStreamAccumulator:
    def accept(self, *, req):
        self.rids.append(req.rid)
        self.finished_reasons.append(
            req.finished_reason.to_json() if req.finished_reason else None
        ); _sgldbg.off("finish-reason.1") or _sgldbg.hit("finish-reason.1", locals())
        self.decoded_texts.append(req.decoded_text)
