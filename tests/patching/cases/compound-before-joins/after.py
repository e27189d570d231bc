from sglang import _sgldbg; import os
def f(x):
    y = 1; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())  # first

    # about the if
    if x:
        y = 2
    return y
