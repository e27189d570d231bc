import os

def f(x):
    a = x
    if a:
        print(a)
    b = a
    print(b)
    return b
