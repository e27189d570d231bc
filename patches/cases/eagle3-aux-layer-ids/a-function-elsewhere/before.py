from sglang.srt.model_executor.model_runner_components.attention_backend_setup import (
    configure_aux_hidden_state_capture,
)


class ModelRunner:
    def init_attention_backends(self):
        configure_aux_hidden_state_capture(
            model=self.model,
            eagle_use_aux_hidden_state=self.eagle_use_aux_hidden_state,
        )
        self.init_attention_backend()
