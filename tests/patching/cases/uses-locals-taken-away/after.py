from sglang import _sgldbg
def f(x):
    kw = locals()
    error = lent = 1

    def give():
        nonlocal lent
        del lent

    while x:
        try:
            give()
        except NameError as error:
            break
    else:
        return kw
    y = 2
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", {"x": x, "y": y}); return y
