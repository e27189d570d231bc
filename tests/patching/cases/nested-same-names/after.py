from sglang import _sgldbg
def f(x):
    def g(y):
        z = y
        return z
    return g

def h(x):
    def g(y):
        z = y; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
        return z
    return g
