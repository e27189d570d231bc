def f(x):
    y = [
        [g(a) for a in x]
        for _sgldbg in x
    ]
    return y
