import os
def f(a, b, c):
    total = a + b + c
    return total
