"""What the module is for."""

import os


def f(x):
    a = 1  # the one
    return a
