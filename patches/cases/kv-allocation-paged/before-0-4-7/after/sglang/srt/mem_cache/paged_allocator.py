from sglang import _sgldbg
class PagedTokenToKVPoolAllocator:
    def alloc_extend(self, prefix_lens, seq_lens, last_loc, extend_num_tokens):
        _sgldbg.off("kv-allocation-paged.1") or _sgldbg.hit("kv-allocation-paged.1", locals())
        if self.debug_mode:
            assert seq_lens.min() > 0
        return self.take(extend_num_tokens)
