class Scheduler:
    @stage("run_batch")
    def run_batch(self, batch, pp_proxy_tensors=None):
        """Run a batch."""
        self.reporter.record_active()
        self.forward_ct += 1
        batch.forward_iter = self.forward_ct
        return self.worker.forward(batch)
