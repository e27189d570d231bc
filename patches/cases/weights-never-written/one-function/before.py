class DefaultModelLoader:
    def load_model(self, model_config, device_config):
        model = self.initialize(model_config)
        self.load_weights_and_postprocess(model, self._get_all_weights(model_config, model), "cpu")
        return model.eval()

    @staticmethod
    def load_weights_and_postprocess(model, weights, target_device):
        model.load_weights(weights)

        for _, module in model.named_modules():
            module.process(target_device)
