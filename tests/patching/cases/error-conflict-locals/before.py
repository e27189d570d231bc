import os


def f(x):
    y = g(x)
    z = h(**locals())
    return z
