# A file that begins with a definition.
def f(x):
    a = x
    return a


import os
