import os
def f(x):
    if x: a = x; a = a + 1; a = a * 2; return a
    return 0
