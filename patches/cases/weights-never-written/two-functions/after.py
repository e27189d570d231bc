from sglang import _sgldbg
class DefaultModelLoader:
    @staticmethod
    def load_weights_and_postprocess(model, weights, target_device):
        _sgldbg_before = {
            name: parameter.detach().reshape(-1)[:64].clone()
            for name, parameter in model.named_parameters()
        }
        DefaultModelLoader.load_weights_only(model, weights, target_device)
        _sgldbg.off("weights-never-written.2") or _sgldbg.hit("weights-never-written.2", locals()); DefaultModelLoader.postprocess_weights(model, target_device)

    @staticmethod
    def load_weights_only(model, weights, target_device):
        if model.quantises:
            model.load_weights(weights)
        else:
            model.load_weights(weights)
