from sglang import _sgldbg
class PrefillAdder:
    def _update_prefill_budget(self, prefix_len, extend_input_len, max_new_tokens):
        self.rem_input_tokens -= extend_input_len
        self.log_hit_tokens += prefix_len; _sgldbg.off("prefix-hit.1") or _sgldbg.hit("prefix-hit.1", locals())
        self.log_input_tokens += extend_input_len
