import os
def f(x):
    if g(x):
        y = 1 + g(x)
    return y
