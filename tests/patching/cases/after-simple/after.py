"""What the module is for."""; from sglang import _sgldbg

import os


def f(x):
    a = 1; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())  # the one
    return a
