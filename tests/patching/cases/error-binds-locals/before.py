import os


def f(x):
    locals = x
    y = x
    return y, locals
