import os
def f(h, s):
    h = s + h
    return h
