def f(x):
    g = lambda a=x: a
    return g
