def f(x):
    y = lambda a, _sgldbg: g(a, _sgldbg)
    return y
