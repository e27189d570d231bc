from sglang import _sgldbg; import os
def f(x): _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); return x
class C: limit = 1; _sgldbg.off("p.2") or _sgldbg.hit("p.2", dict(locals()))
