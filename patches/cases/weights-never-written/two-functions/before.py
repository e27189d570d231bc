class DefaultModelLoader:
    @staticmethod
    def load_weights_and_postprocess(model, weights, target_device):
        DefaultModelLoader.load_weights_only(model, weights, target_device)
        DefaultModelLoader.postprocess_weights(model, target_device)

    @staticmethod
    def load_weights_only(model, weights, target_device):
        if model.quantises:
            model.load_weights(weights)
        else:
            model.load_weights(weights)
