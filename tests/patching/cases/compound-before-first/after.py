from sglang import _sgldbg; import os
def f(x):
    # about the if
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    if x:
        y = 2
    return x
