import os


def f(x):
    """Doc."""
    x = x + 1
    return x
