import os
def f(x):
    a = x; return a
