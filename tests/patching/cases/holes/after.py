from sglang import _sgldbg; import os
def f(x):
    a.b = a.c
    a.b = a.b; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return a
