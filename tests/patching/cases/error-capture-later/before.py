import os


def f(x):
    y = x
    z = y
    return z
