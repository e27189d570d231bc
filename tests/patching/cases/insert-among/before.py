import os
def f(x):
    if x: a = x; return a
    return 0
