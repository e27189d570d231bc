import torch


class GroupCoordinator:
    def barrier(self):
        """Wait for the group, on the CPU."""
        torch.distributed.barrier(group=self.cpu_group)
