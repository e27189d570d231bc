import os
def f(x):
    for i in x:
        y = i
        # end of the loop

    # the rest
    z = 1
    return z
