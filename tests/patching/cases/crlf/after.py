"""Doc."""; from sglang import _sgldbg
import os


def f(x):
    a = x; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    if a:
        return 1
    _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
