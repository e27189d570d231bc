import os


def f(x):
    a = 1
    return a
