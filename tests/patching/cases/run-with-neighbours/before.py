import os
def f(g):
    y = g(1, 2)
    y = g(1, 2, g(3), 2)
    return y
