from sglang import _sgldbg; N = 0

def f(x):
    k = x
    def g():
        global N
        nonlocal k; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
        N += 1
        k += 1
        return _sgldbg.tap("p.2", k, None if _sgldbg.off("p.2") else locals())
    return g
