class TokenToKVPoolAllocator(BaseTokenToKVPoolAllocator):
    def alloc(self, need_size):
        if need_size > len(self.free_pages):
            return None
        return self.take(need_size)
