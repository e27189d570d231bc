from sglang import _sgldbg
def f(xs, g):
    if _sgldbg.tap("p.1", g(1), None if _sgldbg.off("p.1") else locals()) and xs:
        return(_sgldbg.tap("p.2", (g(2)), None if _sgldbg.off("p.2") else locals()))
    a = [_sgldbg.tap("p.3", g(3), None if _sgldbg.off("p.3") else {}) for x in xs]
    b = lambda: _sgldbg.tap("p.4", g(4), None if _sgldbg.off("p.4") else {})
    c = _sgldbg.tap("p.5", g(
        5,  # five
    ), None if _sgldbg.off("p.5") else locals())
    while not _sgldbg.tap("p.6", g(6), None if _sgldbg.off("p.6") else locals()): pass
    for i in _sgldbg.tap("p.7", g(7), None if _sgldbg.off("p.7") else locals()): pass
    with _sgldbg.tap("p.8", g(8), None if _sgldbg.off("p.8") else locals()) as d: pass
    elif_ = 1 if _sgldbg.tap("p.9", g(9), None if _sgldbg.off("p.9") else locals()) else 2
    print(_sgldbg.tap_group("p.10", (x for x in g(10)), None if _sgldbg.off("p.10") else locals()))
    return _sgldbg.tap_group("p.11", (a, b), None if _sgldbg.off("p.11") else locals())
