from sglang import _sgldbg
class A:
    def f(self, x, more):
        kw = locals()
        with more:
            held = 1
        if x:
            late = 1
        __y = 2; _sgldbg.off("p.1") or _sgldbg.hit("p.1", {"_A__y": _A__y, "self": self, "x": x})
        return _sgldbg.tap("p.2", kw, None if _sgldbg.off("p.2") else {})
