from sglang import _sgldbg; import os

N = 0


def f(x):
    """Count."""
    global N; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    N = N + x
