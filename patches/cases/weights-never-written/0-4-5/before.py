class DefaultModelLoader:
    def load_model(self, model_config, device_config):
        model = self.initialize(model_config)
        model.load_weights(self._get_all_weights(model_config, model))
        for _, module in model.named_modules():
            module.process()
        return model.eval()
