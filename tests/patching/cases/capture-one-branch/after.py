from sglang import _sgldbg; import os
def f(x):
    if x:
        y = 1
    for i in x:
        z = i
    try:
        w = 1
    except ValueError:
        pass
    done = 1; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return done
