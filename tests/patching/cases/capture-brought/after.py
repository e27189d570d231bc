from sglang import _sgldbg; import time; import os


def f(x):
    began = time.time()
    y = g(x)
    z, w = h(y), 1
    _sgldbg.off("p.4") or _sgldbg.hit("p.4", locals()); return z
