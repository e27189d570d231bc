from sglang import _sgldbg; import os
import torch
from math import pi

LIMIT = 3


class A:
    def f(self, x, *args, k=1, **kw):
        def inner():
            return x

        with inner() as (a, b):
            c = 1; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
        return a
