import torch


def f(x):
    y = x
    return y


f_script = torch.jit.script(f)
