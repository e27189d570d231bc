import os
def f(x):
    a.b = a.c
    a.b = a.b
    return a
