import os

def f(x):
    a = x
    b = a
    return b
