import os
def f(x):
    y = 0

    # why a
    # fix
    if not x:

        # never so
        raise ValueError(x)
    a = x
    return a
