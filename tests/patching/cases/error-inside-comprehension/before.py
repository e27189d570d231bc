import os
def f(x):
    return [g(v) for v in x]
