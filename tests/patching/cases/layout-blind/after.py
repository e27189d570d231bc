from sglang import _sgldbg; import os


def f(x, d):
    total = (g(
        d["a"],  # a comment
        1_000,
        'x' "y",
    )); _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return total
