from sglang import _sgldbg
class ModelRunner:
    def initialize(self, min_per_gpu_memory):
        if self.spec_algorithm.is_eagle3() and not self.is_draft_worker:
            ids = self.draft_model_config.eagle_config
            self.model.set_eagle3_layers_to_capture(ids); _sgldbg.off("eagle3-aux-layer-ids.1") or _sgldbg.hit("eagle3-aux-layer-ids.1", locals())

    def kernel_warmup(self):
        self.model.set_eagle3_layers_to_capture()
