from sglang import _sgldbg; import os
def f(x):
    for z in x:
        y = 1; _sgldbg.off("p.3") or _sgldbg.hit("p.3", locals())
    if x:
        y = 1; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    else:
        y = 1
    try:
        y = 1; _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
    finally:
        pass
    return y
