from sglang import _sgldbg
class GroupCoordinator:
    def all_reduce(self, input_):
        """Sum over the group."""; _sgldbg.off("all-reduce-order.1") or _sgldbg.hit("all-reduce-order.1", locals())
        if self.world_size == 1:
            return input_
        return self.reduce(input_)
