from sglang import _sgldbg
def f(x):
    y = x; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())  # last
    # below
def g(x):
    if x:
        return 1
    _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
