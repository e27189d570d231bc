import os
def f(x):
    y = x + \
        1
    assert y, \
        'no'
    return y
