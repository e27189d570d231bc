import os
def f(x):
    y = 1  # first

    # about the if
    if x:
        y = 2
    return y
