import os

_sgldbg = None


def f(x):
    y = x
    return y
