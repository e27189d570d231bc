def f(g):
    a = g(1) + g(1)
    return a
