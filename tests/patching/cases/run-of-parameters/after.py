from sglang import _sgldbg; import os
def f(g):
    def inner(a, /, b, *c, d=1, **e): return a
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); return inner
