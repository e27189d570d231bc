import os
def f(x):
    key = lambda v: v + x
    y = sorted(x, key=key)
    return y
