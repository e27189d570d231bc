from sglang import _sgldbg
def f(g):
    a = g(1) + _sgldbg.tap("p.1", g(1), None if _sgldbg.off("p.1") else locals())
    return a
