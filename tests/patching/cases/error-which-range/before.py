import os
def f(x):
    return x
