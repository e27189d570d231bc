from sglang import _sgldbg; import os
if os.name:
    def f(x):
        a = x
else:
    class f:
        pass
try:
    def g(x): _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); return 1
finally:
    pass
