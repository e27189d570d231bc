from sglang import _sgldbg; import os


def f(x):
    # note
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    if x:
        return 1
    return 2
