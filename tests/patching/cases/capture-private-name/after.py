from sglang import _sgldbg; import os


class _A:
    def f(self, __p):
        __q = __p; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
        return __q
