import os
def f(h):
    h = h + 1
    # clamp
    h = min(h,
            60)
    return h
