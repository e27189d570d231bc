from sglang import _sgldbg
class LlamaForCausalLMEagle3:
    def load_weights(self, weights):
        params_dict = dict(self.named_parameters())
        for name, loaded_weight in weights:
            for param_name, weight_name, shard_id in self.stacked:
                if weight_name not in name:
                    continue
                name = name.replace(weight_name, param_name)
                param_name = f"model.{name}" if name not in params_dict else name; _sgldbg.off("eagle3-weights-dropped.1") or _sgldbg.hit("eagle3-weights-dropped.1", locals())
                if param_name in params_dict:
                    self.load_shard(params_dict[param_name], loaded_weight, shard_id)
                break
            else:
                param_name = name if name in params_dict else f"model.{name}"; _sgldbg.off("eagle3-weights-dropped.1") or _sgldbg.hit("eagle3-weights-dropped.1", locals())
                if param_name in params_dict:
                    self.load_one(params_dict[param_name], loaded_weight)
