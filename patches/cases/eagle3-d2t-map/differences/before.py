import torch


class LlamaForCausalLMEagle3:
    def __init__(self, config):
        self.hot_token_id = None

    def load_weights(self, weights):
        for name, loaded_weight in weights:
            if "d2t" in name:
                # d2t holds differences
                self.hot_token_id = loaded_weight + torch.arange(loaded_weight.shape[0])
                continue
            self.load_one(name, loaded_weight)
