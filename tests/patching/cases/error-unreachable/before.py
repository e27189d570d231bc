import os
def f(x):
    while True:
        x = x + 1
    return x
