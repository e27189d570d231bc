import os


def f(x):
    # note
    if x:
        return 1
    return 2
