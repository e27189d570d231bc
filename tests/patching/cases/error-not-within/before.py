import os
def f(x):
    if x:
        y = 1
    else:
        y = 2
    return y
