from sglang import _sgldbg; import os
"""Not a docstring any more."""

def f(x):
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); return x
