from sglang import _sgldbg; import os
def f(x):
    a = x; _sgldbg.off("q.1") or _sgldbg.hit("q.1", locals())
    return a
