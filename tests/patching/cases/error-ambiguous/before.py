import os


def f(c, d):
    if not c:
        return c, d
    c = c + 1
    return c, d
