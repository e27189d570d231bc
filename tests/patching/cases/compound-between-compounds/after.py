from sglang import _sgldbg; import os
def f(x):
    while x:
        x = 0
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    with x:
        x = 1
    return x
