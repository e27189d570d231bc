from sglang import _sgldbg; import os
def f(x, w):
    s = f'{x!r:>{w}} {{' "end"; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    t = f'{x}'
    return s
