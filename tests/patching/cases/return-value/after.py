from sglang import _sgldbg
def f(x):
    """Doc."""
    if x: _sgldbg.tap("p.1", None, None if _sgldbg.off("p.1") else locals()); return
    if x > 1:
        return _sgldbg.tap_group("p.1", (x, 1), None if _sgldbg.off("p.1") else locals())
    for i in x:
        return(_sgldbg.tap("p.1", (i), None if _sgldbg.off("p.1") else locals()))
    g(x); _sgldbg.tap("p.1", None, None if _sgldbg.off("p.1") else locals())
