import os
def f(x):
    y = 0

    # why a
    a = x
    return a
