from sglang import _sgldbg; import os
def f(x):
    if x:
        return _sgldbg.tap("p.1", 1, None if _sgldbg.off("p.1") else locals())
        return 2
    while True:
        x = x + 1
        if x:
            return _sgldbg.tap("p.1", x, None if _sgldbg.off("p.1") else locals())
    return None
