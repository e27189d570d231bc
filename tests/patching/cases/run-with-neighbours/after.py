from sglang import _sgldbg; import os
def f(g):
    y = g(1, 2)
    y = g(1, 2, g(3), 2); _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return y
