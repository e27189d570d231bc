import os
def f(x):
    a = x
    if a:
        print(a)