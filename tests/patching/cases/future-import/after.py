"""Doc."""
from __future__ import annotations
from __future__ import division; from sglang import _sgldbg; import os


def f(x):
    a = x; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return a
