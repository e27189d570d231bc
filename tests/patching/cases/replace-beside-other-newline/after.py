from sglang import _sgldbg
def f(x):
    y = 1
    z = 2  # c
    _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
    return y
