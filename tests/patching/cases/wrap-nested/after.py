from sglang import _sgldbg
def f(g, h):
    return _sgldbg.tap("p.3", _sgldbg.tap("p.1", g(_sgldbg.tap("p.2", h(1), None if _sgldbg.off("p.2") else locals())), None if _sgldbg.off("p.1") else locals()), None if _sgldbg.off("p.3") else locals())
