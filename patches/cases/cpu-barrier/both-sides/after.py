from sglang import _sgldbg; import torch


class GroupCoordinator:
    def barrier(self):
        """Wait for the group, on the CPU."""
        _sgldbg.off("cpu-barrier.1") or _sgldbg.hit("cpu-barrier.1", locals()); torch.distributed.barrier(group=self.cpu_group); _sgldbg.off("cpu-barrier.2") or _sgldbg.hit("cpu-barrier.2", locals())
