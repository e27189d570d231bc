from sglang import _sgldbg
class TokenToKVPoolAllocator(BaseTokenToKVPoolAllocator):
    def alloc(self, need_size):
        _sgldbg.off("kv-allocation.1") or _sgldbg.hit("kv-allocation.1", locals())
        if need_size > len(self.free_pages):
            return None
        return self.take(need_size)
