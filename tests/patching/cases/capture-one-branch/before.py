import os
def f(x):
    if x:
        y = 1
    for i in x:
        z = i
    try:
        w = 1
    except ValueError:
        pass
    done = 1
    return done
