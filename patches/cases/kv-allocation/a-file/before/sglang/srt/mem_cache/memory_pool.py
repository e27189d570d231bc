class ReqToTokenPool:
    def alloc(self, need_size):
        if need_size > len(self.free_slots):
            return None
        return self.free_slots[:need_size]
