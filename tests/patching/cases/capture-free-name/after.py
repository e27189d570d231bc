from sglang import _sgldbg; import os
def f(x):
    n = 0
    m = 0
    def inner():
        nonlocal n
        n = x; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
        return n
    return inner, m
