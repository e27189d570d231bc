import os


def f(x):
    y = g(x)

    def inner():
        y = g(x)
        return y

    return inner
