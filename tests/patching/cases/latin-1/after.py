# -*- coding: latin-1 -*-
from sglang import _sgldbg; import os
def f(n):
    s = "café" * n; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return s
