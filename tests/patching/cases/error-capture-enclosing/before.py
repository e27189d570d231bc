import os


def f(x):
    n = 0

    def inner(y):
        z = y
        return z

    return inner, n
