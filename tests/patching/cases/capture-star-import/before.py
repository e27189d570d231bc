from os import *
def f(x):
    y = x
    return y
