import os
def f(x):
    try:
        a = x
    except (ValueError, KeyError) :
        a = 1
    return a
