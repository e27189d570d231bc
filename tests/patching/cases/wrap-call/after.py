from sglang import _sgldbg
def f(self, x):
    y = _sgldbg.tap("p.1", self.runner.sample(x, k=1), None if _sgldbg.off("p.1") else locals())  # note
    return y
