from sglang import _sgldbg; import os
def f(h, s):
    h = s + h; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    h = h * 2
    h = s + h
    return h
