from sglang import _sgldbg; import os
def f(x):
    if x: _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); return 1
    else: y = 2; _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals()); z = 3; _sgldbg.off("p.3") or _sgldbg.hit("p.3", locals())
    return y + z
