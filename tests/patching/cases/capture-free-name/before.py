import os
def f(x):
    n = 0
    m = 0
    def inner():
        nonlocal n
        n = x
        return n
    return inner, m
