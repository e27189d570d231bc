import os
def f(x, w):
    s = f'{x!r:>{w}} {{' "end"
    t = f'{x}'
    return s
