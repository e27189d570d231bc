# A file that begins with a definition.
from sglang import _sgldbg
def f(x):
    a = x; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return a


import os
