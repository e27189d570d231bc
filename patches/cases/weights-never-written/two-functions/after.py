from sglang import _sgldbg
class DefaultModelLoader:
    @staticmethod
    def load_weights_and_postprocess(model, weights, target_device):
        _sgldbg_before = {
            name: parameter.detach().reshape(-1)[:64].clone().float().cpu()
            for name, parameter in model.named_parameters()
            if parameter.numel()
        }
        def _sgldbg_unchanged(model, of_one_number, before=_sgldbg_before):
            return [
                name
                for name, parameter in model.named_parameters()
                if name in before
                and (before[name].unique().numel() == 1) == of_one_number
                and before[name].equal(parameter.detach().reshape(-1)[:64].to(before[name]))
            ]
        DefaultModelLoader.load_weights_only(model, weights, target_device)
        _sgldbg.off("weights-never-written.2") or _sgldbg.hit("weights-never-written.2", locals()); DefaultModelLoader.postprocess_weights(model, target_device)

    @staticmethod
    def load_weights_only(model, weights, target_device):
        if model.quantises:
            model.load_weights(weights)
        else:
            model.load_weights(weights)
