import os
def f(x):
    if x: return 1
    else: y = 2; z = 3
    return y + z
