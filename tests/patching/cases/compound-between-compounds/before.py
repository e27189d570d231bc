import os
def f(x):
    while x:
        x = 0
    with x:
        x = 1
    return x
