from sglang import _sgldbg; import os
def f(x):
    key = lambda v: v + x
    y = sorted(x, key=key); _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return y
