from sglang import _sgldbg; import os
import torch


class M:
    @torch.no_grad()
    def forward(self, x):
        y = x * 2; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
        return y
