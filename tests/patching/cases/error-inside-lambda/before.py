import os
def f(x):
    y = map(lambda v: g(v), x)
    return y
