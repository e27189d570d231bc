import os


def f(x):
    y = x
    del y
    z = 1
    return z
