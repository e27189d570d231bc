import os
def f(x):
    x.append(1)
    return 1
    return 2
