import os
def f(x):
    a = x  # café
