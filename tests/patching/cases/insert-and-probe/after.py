from sglang import _sgldbg; import os
def f(x):
    a = x; _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
    a = a + 1
    return a
