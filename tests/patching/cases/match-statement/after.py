from sglang import _sgldbg; import os
def f(x):
    _sgldbg.off("p.3") or _sgldbg.hit("p.3", locals())
    match x:
        case {'a': 1}: _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); return 1
        case _:
            y = 2; _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
    return y
