import os

N = 0


def f(x):
    """Count."""
    global N
    N = N + x
