class TokenToKVPoolAllocator:
    def alloc(self, need_size):
        if need_size > len(self.free_slots):
            return None
        return self.take(need_size)
