"""Doc."""
import os


def f(x):
    a = x
    if a:
        return 1
