from sglang import _sgldbg; import os
def f(x):
    y = x + \
        1; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals()); assert y, \
        'no'
    return y
