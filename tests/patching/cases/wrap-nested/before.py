def f(g, h):
    return g(h(1))
