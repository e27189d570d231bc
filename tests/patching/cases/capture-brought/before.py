import os


def f(x):
    y = g(x)
    z = h(y)
    return z
