import os
def f(x):
    if x: x = 1