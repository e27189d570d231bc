from sglang import _sgldbg
class Scheduler:
    @stage("run_batch")
    def run_batch(self, batch, pp_proxy_tensors=None):
        """Run a batch."""
        self.reporter.record_active()
        self.forward_ct += 1; _sgldbg.off("batch-composition.1") or _sgldbg.hit("batch-composition.1", locals())
        batch.forward_iter = self.forward_ct
        return self.worker.forward(batch)
