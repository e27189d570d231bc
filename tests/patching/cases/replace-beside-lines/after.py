from sglang import _sgldbg
def f(x):
    # about y
    x += 1
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    z = x
    y = g(z)  # why
    _sgldbg.off("p.5") or _sgldbg.hit("p.5", locals())
    _sgldbg.off("p.6") or _sgldbg.hit("p.6", locals())
    y += 1
    if y:
        return y
    if y is None:
        w = y
    _sgldbg.off("p.8") or _sgldbg.hit("p.8", locals())
    return w
