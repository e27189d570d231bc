from sglang import _sgldbg; import os


def f(x):
    y = g(x); _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())

    def inner():
        y = g(x); _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
        return y

    return inner
