import os
def f(h, s):
    h = s + h
    h = min(h, 60)
    h = h * 2
    h = s + h
    h = min(h, 60)
    return h
