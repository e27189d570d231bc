from sglang import _sgldbg; import os
def f(x):
    if x: x = 1
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())