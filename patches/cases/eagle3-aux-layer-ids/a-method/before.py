class ModelRunner:
    def initialize(self, min_per_gpu_memory):
        self.init_aux_hidden_state_capture()

    def init_aux_hidden_state_capture(self):
        if self.eagle_use_aux_hidden_state:
            self.model.set_eagle3_layers_to_capture(self.eagle_aux_hidden_state_layer_ids)
