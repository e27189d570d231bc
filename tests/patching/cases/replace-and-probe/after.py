from sglang import _sgldbg
def f(x):
    x += 1
    y = g(x + 1); _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return y
