from sglang import _sgldbg; import os
def f(x):
    for i in x:
        y = i
        # end of the loop

    # the rest
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); z = 1
    return z
