import os
def f(g):
    def inner(a, /, b, *c, d=1, **e): return a
    return inner
