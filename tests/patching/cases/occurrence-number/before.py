import os
def f(h, s):
    h = s + h
    h = h * 2
    h = s + h
    return h
