import os
import torch


class M:
    @torch.no_grad()
    def forward(self, x):
        y = x * 2
        return y
