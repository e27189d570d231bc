import os
def f(x):
    # about the if
    if x:
        y = 2
    return x
