from sglang import _sgldbg; import os
def f(x):
    a = x; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
    _sgldbg.off("p.3") or _sgldbg.hit("p.3", locals()); _sgldbg.off("p.4") or _sgldbg.hit("p.4", locals()); return a
