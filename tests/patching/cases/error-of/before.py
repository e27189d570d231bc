import os
def f(h, s):
    h = s + h
    h = s + h
    h = s + h
