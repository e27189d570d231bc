from sglang import _sgldbg; import os
def f(n):
    größe = "é" * n; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); s = "…"
    return s
