from sglang import _sgldbg; import os


class A:
    def f(self):
        self.n = g(1); _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
