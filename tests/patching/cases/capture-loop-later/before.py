import os
def f(x):
    while x:
        a = x
        b = a
    return b
