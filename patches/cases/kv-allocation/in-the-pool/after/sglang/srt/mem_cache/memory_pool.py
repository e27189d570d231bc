from sglang import _sgldbg
class TokenToKVPoolAllocator:
    def alloc(self, need_size):
        _sgldbg.off("kv-allocation.1") or _sgldbg.hit("kv-allocation.1", locals())
        if need_size > len(self.free_slots):
            return None
        return self.take(need_size)
