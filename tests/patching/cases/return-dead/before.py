import os
def f(x):
    if x:
        return 1
        return 2
    while True:
        x = x + 1
        if x:
            return x
    return None
