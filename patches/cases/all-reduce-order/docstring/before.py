class GroupCoordinator:
    def all_reduce(self, input_):
        """Sum over the group."""
        if self.world_size == 1:
            return input_
        return self.reduce(input_)
