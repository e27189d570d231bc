import os
def f(x):
    for z in x:
        y = 1
    if x:
        y = 1
    else:
        y = 1
    try:
        y = 1
    finally:
        pass
    return y
