from sglang import _sgldbg
class DefaultModelLoader:
    def load_model(self, model_config, device_config):
        model = self.initialize(model_config)
        _sgldbg_before = {
            name: parameter.detach().reshape(-1)[:64].clone()
            for name, parameter in model.named_parameters()
        }
        model.load_weights(self._get_all_weights(model_config, model)); _sgldbg.off("weights-never-written.2") or _sgldbg.hit("weights-never-written.2", locals())
        for _, module in model.named_modules():
            module.process()
        return model.eval()
